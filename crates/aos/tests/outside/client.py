"""The official Python client against `aos mcp` on standard streams. argv: the program, the folder to work in."""

import asyncio
import os
import sys
from pathlib import Path

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

program, root = sys.argv[1], Path(sys.argv[2])
progress = []


async def person(_context, params):
    raise AssertionError(f"a question: {params.message}")


async def hear(_progress, _total, message):
    progress.append(message)


def said(result):
    return result.content[0].text


async def scripted(call):
    """Reads, edits, runs a command that breaks a file, undoes it and sees the file whole."""
    assert said(await call("read_file", path="greeting.txt")) == "   1 | hello\n   2 | world"
    await call("edit_file", path="greeting.txt", old_string="world", new_string="everybody")
    assert (root / "greeting.txt").read_text() == "hello\neverybody\n"
    broken = await call("shell", command="echo broken > greeting.txt; echo done", progress_callback=hear)
    assert "done" in said(broken) and "exit code 0" in said(broken), said(broken)
    assert (root / "greeting.txt").read_text() == "broken\n"
    assert broken.structured_content is None
    undone = await call("undo")
    if "restored greeting.txt" in said(undone):
        assert (root / "greeting.txt").read_text() == "hello\neverybody\n"
        assert "everybody" in said(await call("read_file", path="greeting.txt"))
    else:
        print("the command could not be captured on this machine:", said(undone))


async def main():
    server = StdioServerParameters(command=program, args=["mcp", "--root", str(root)], env=dict(os.environ))
    async with stdio_client(server) as (read, write):
        async with ClientSession(read, write, elicitation_callback=person) as session:
            await session.initialize()

            async def call(name, progress_callback=None, **arguments):
                return await session.call_tool(name, arguments, progress_callback=progress_callback)

            names = [tool.name for tool in (await session.list_tools()).tools]
            assert "shell" in names and "undo" in names, names
            await scripted(call)
            assert "done" in progress, progress

            failed = await call("read_file", path="missing.txt")
            assert failed.is_error and "Next:" in said(failed), failed

            absolute = await call("read_file", path=str(root / "greeting.txt"))
            assert not absolute.is_error, absolute

            (root / "started").unlink(missing_ok=True)
            waiting = asyncio.create_task(call("shell", command=["sh", "-c", "echo started; sleep 600"], progress_callback=hear))
            while "started" not in progress:
                await asyncio.sleep(0.01)
            waiting.cancel()
            # The session takes commands one at a time: this one runs because that one was ended.
            assert "again" in said(await call("shell", command="echo again"))

            resource = await session.read_resource("aos://prompt")
            assert "write_file" in resource.contents[0].text
    print("all well")


asyncio.run(main())
