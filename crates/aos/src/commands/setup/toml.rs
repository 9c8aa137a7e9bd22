//! Sets one MCP server in a TOML file; everything else keeps its order, comments and spelling.

use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, TableLike, Value};

/// The file with the server `name` in the table `list`. Other keys of the server's table are kept, unless it is a
/// server over HTTP, which has no command: that table is replaced.
pub(super) fn with_server(
    before: &str,
    list: &str,
    name: &str,
    program: &str,
    arguments: &[&str],
) -> Result<String, String> {
    let mut file: DocumentMut = before.parse().map_err(|why| format!("it is not TOML ({why})"))?;
    let not_a_table = |what: &str| format!("`{what}` in it is not a table");
    let is_new = !file.contains_key(list);
    let servers = file.entry(list).or_insert_with(|| {
        let mut servers = Table::new();
        // Only `[list.name]` is written, no empty `[list]` before it.
        servers.set_implicit(true);
        Item::Table(servers)
    });
    let is_inline = servers.is_inline_table();
    let servers = servers.as_table_like_mut().ok_or_else(|| not_a_table(list))?;
    if servers.get(name).is_none_or(is_over_http) {
        servers.insert(name, if is_inline { inline_table() } else { Item::Table(Table::new()) });
    }
    let server = servers.get_mut(name).and_then(Item::as_table_like_mut);
    let server = server.ok_or_else(|| not_a_table(&format!("{list}.{name}")))?;
    set(server, "command", program.into());
    set(server, "args", arguments.iter().copied().collect::<Array>().into());
    let text = separated(file, list, name, is_new);
    // Parsed again, so that a file which the agent could not read is never written.
    let is_set = |text: &str| {
        let file: DocumentMut = text.parse().ok()?;
        let server = file.get(list)?.get(name)?;
        let args: Vec<&str> = server.get("args")?.as_array()?.iter().filter_map(Value::as_str).collect();
        Some(server.get("command")?.as_str()? == program && args == arguments)
    };
    if is_set(&text) != Some(true) {
        return Err(format!("`{list}.{name}` cannot be set in it"));
    }
    Ok(text)
}

fn is_over_http(server: &Item) -> bool {
    server.as_table_like().is_some_and(|server| server.contains_key("url"))
}

fn inline_table() -> Item {
    Item::Value(Value::InlineTable(InlineTable::new()))
}

/// Sets a value and keeps the white space and comments around the old one.
fn set(table: &mut dyn TableLike, key: &str, mut value: Value) {
    match table.get_mut(key).and_then(Item::as_value_mut) {
        Some(old) => {
            *value.decor_mut() = old.decor().clone();
            *old = value;
        }
        None => drop(table.insert(key, Item::Value(value))),
    }
}

/// As text, with an empty line before a table that was added.
fn separated(mut file: DocumentMut, list: &str, name: &str, is_new: bool) -> String {
    // A table in a new list is added at the end of the file, after its trailing comments.
    let trailing = file.trailing().as_str().unwrap_or_default().to_owned();
    if is_new {
        file.set_trailing("");
    }
    let has_text = !file.to_string().trim_start().starts_with(&format!("[{list}.{name}]"));
    let prefix = |above: &str| match (above.is_empty(), has_text) {
        (true, false) => String::new(),
        (true, true) => "\n".to_owned(),
        (false, _) => format!("{}\n\n", above.trim_end_matches('\n')),
    };
    let table = file.get_mut(list).and_then(|servers| servers.get_mut(name)).and_then(Item::as_table_mut);
    if let Some(table) = table.filter(|table| table.position().is_none() && !table.is_dotted()) {
        table.decor_mut().set_prefix(prefix(if is_new { &trailing } else { "" }));
    }
    file.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set_up(before: &str) -> Result<String, String> {
        with_server(before, "mcp_servers", "aos", "aos", &["mcp"])
    }

    const OURS: &str = "[mcp_servers.aos]\ncommand = \"aos\"\nargs = [\"mcp\"]\n";

    #[test]
    fn a_server_is_added_once() {
        for (before, between) in [
            ("", ""),
            ("model = \"x\"\n", "\n"),
            ("model = \"x\"", "\n\n"),
            ("# mine\nmodel = \"x\" # and why\n\n[profiles.a]\nx = 1\n", "\n"),
            ("model = \"x\"\n\n# the end\n", "\n"),
            ("# all of it is a comment\n", "\n"),
            ("[mcp_servers.other]\ncommand = \"o\"\n", "\n"),
            ("mcp_servers.other.command = \"o\"\n", "\n"),
            ("[mcp_servers]\n", "\n"),
        ] {
            let once = set_up(before).unwrap();
            assert_eq!(once, format!("{before}{between}{OURS}"));
            assert_eq!(set_up(&once).unwrap(), once);
        }
    }

    #[test]
    fn an_existing_server_is_changed_in_place() {
        for (before, after) in [
            (
                "[mcp_servers.aos]\ncommand = \"old\" # mine\nargs = []\n\n[other]\nx = 1\n",
                "[mcp_servers.aos]\ncommand = \"aos\" # mine\nargs = [\"mcp\"]\n\n[other]\nx = 1\n",
            ),
            (
                "[mcp_servers.\"aos\"]\nenv = { A = \"1\" }\ncommand = 'old'\n",
                "[mcp_servers.\"aos\"]\nenv = { A = \"1\" }\ncommand = \"aos\"\nargs = [\"mcp\"]\n",
            ),
            (
                "mcp_servers = { aos = { command = \"old\" }, b = {} }\n",
                "mcp_servers = { aos = { command = \"aos\" , args = [\"mcp\"] }, b = {} }\n",
            ),
            ("mcp_servers = {}\n", "mcp_servers = { aos = { command = \"aos\", args = [\"mcp\"] } }\n"),
            (
                "[mcp_servers]\naos.command = \"old\"\nb.command = \"b\"\n",
                "[mcp_servers]\naos.command = \"aos\"\naos.args = [\"mcp\"]\nb.command = \"b\"\n",
            ),
            (
                "[mcp_servers.aos]\nurl = \"http://127.0.0.1:1/mcp\"\n[z]\n",
                "[mcp_servers.aos]\ncommand = \"aos\"\nargs = [\"mcp\"]\n[z]\n",
            ),
            (
                "[mcp_servers.aos]\ncommand = \"old\"\n[mcp_servers.aos.env]\nA = \"1\"\n",
                "[mcp_servers.aos]\ncommand = \"aos\"\nargs = [\"mcp\"]\n[mcp_servers.aos.env]\nA = \"1\"\n",
            ),
        ] {
            assert_eq!(set_up(before).unwrap(), after);
            assert_eq!(set_up(after).unwrap(), after);
        }
    }

    #[test]
    fn a_file_that_cannot_be_merged_is_refused() {
        for wrong in ["[", "mcp_servers = 1\n", "[[mcp_servers]]\nx = 1\n", "[mcp_servers]\naos = true\n"] {
            assert!(set_up(wrong).is_err(), "{wrong}");
        }
    }
}
