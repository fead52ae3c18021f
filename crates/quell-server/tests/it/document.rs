//! The document about the interface is the one of the routes.

use std::path::Path;

use crate::support::World;

#[test]
fn the_committed_document_is_the_one_of_the_routes() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/openapi.json");
    if std::env::var_os("QUELL_WRITE_REFERENCE").is_some() {
        std::fs::write(&path, quell_server::document()).expect("the document can be written");
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    let help = "run QUELL_WRITE_REFERENCE=1 cargo test -p quell-server --test it document";
    assert!(committed == quell_server::document(), "{help}");
}

/// The configuration knows which paths an endpoint cannot have.
#[test]
fn all_paths_begin_like_those_that_no_endpoint_may_have() {
    let document: serde_json::Value = serde_json::from_str(&quell_server::document()).expect("it is JSON");
    for path in document["paths"].as_object().expect("paths").keys() {
        let first = path.split('/').nth(1).map(|first| format!("/{first}")).unwrap_or_default();
        assert!(quell::config::SERVER_PATHS.contains(&first.as_str()), "{path} can be taken by an endpoint");
    }
}

/// The list of operations in `docs/reference/http.md`, made of the document.
fn table() -> String {
    let document: serde_json::Value = serde_json::from_str(&quell_server::document()).expect("it is JSON");
    let mut text = String::from("| call | scope | what it does |\n| --- | --- | --- |\n");
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            let scope = operation["security"][0]["token"][0].as_str().unwrap_or("none");
            let summary = operation["summary"].as_str().unwrap_or_default().replace('\n', " ");
            text.push_str(&format!("| `{} {path}` | {scope} | {summary} |\n", method.to_uppercase()));
        }
    }
    text
}

#[test]
fn the_reference_page_lists_every_operation() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/http.md");
    let page = std::fs::read_to_string(&path).expect("the page is committed");
    let (before, rest) = page.split_once("| call |").expect("the page has the table");
    let after = rest.split_once("\n\n").map_or("", |(_, after)| after);
    let wanted = format!("{before}{}\n{after}", table());
    if std::env::var_os("QUELL_WRITE_REFERENCE").is_some() {
        std::fs::write(&path, &wanted).expect("the page can be written");
    }
    let page = std::fs::read_to_string(&path).expect("the page is committed");
    assert!(page == wanted, "run QUELL_WRITE_REFERENCE=1 cargo test -p quell-server --test it document");
}

#[tokio::test]
async fn the_served_document_is_the_committed_one() {
    let world = World::new().await;
    assert_eq!(world.get("/openapi.json").await.text, quell_server::document());
}

#[test]
fn every_operation_has_an_id_a_tag_and_a_scope() {
    let document: serde_json::Value = serde_json::from_str(&quell_server::document()).expect("it is JSON");
    assert_eq!(document["openapi"], "3.1.0");
    let mut ids = std::collections::BTreeSet::new();
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            let id = operation["operationId"].as_str().unwrap_or_default();
            assert!(ids.insert(id.to_owned()) && !id.is_empty(), "{method} {path}");
            assert_eq!(operation["tags"].as_array().map(Vec::len), Some(1), "{method} {path}");
            assert!(operation["security"].is_array(), "{method} {path} demands no scope");
        }
    }
    assert!(ids.len() > 35, "{}", ids.len());
}
