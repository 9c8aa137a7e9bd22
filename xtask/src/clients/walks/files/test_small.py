import multiprocessing
import socket
import subprocess
import sys


def test_files(tmp_path):
    (tmp_path / "f").write_text("x")
    assert (tmp_path / "f").read_text() == "x"


def test_child(capfd):
    subprocess.run([sys.executable, "-c", "print(1)"], check=True)
    assert capfd.readouterr().out == "1\n"


def test_server():
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname()).close()


def test_pool():
    with multiprocessing.Pool(2) as pool:
        assert pool.map(abs, [-1, 1]) == [1, 1]
