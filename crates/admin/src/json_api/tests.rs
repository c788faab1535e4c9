//! The answers for each kind of caller, and that the description agrees with them.

use std::collections::BTreeSet;

use api::CreateKind;
use types::FileId;

use super::*;
use crate::fixture::{ADMIN, ANN, Fixture, GUEST};
use crate::instance::Problem;

#[test]
fn the_description_has_every_endpoint_and_no_other() {
    let description: Value = serde_json::from_str(DESCRIPTION).unwrap();
    let mut described = BTreeSet::new();
    for (path, item) in description["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys().filter(|key| *key != "parameters") {
            described.insert((path.clone(), method.to_uppercase()));
        }
    }
    let mut known: BTreeSet<(String, String)> =
        ["/metrics", "/health", "/health/live"].map(|path| (path.to_owned(), "GET".to_owned())).into();
    for (path, methods, _) in ENDPOINTS {
        for method in methods.split(", ").filter(|method| *method != "HEAD") {
            known.insert((format!("{PREFIX}{path}"), method.to_owned()));
        }
    }
    assert_eq!(described, known);
}

/// Method, path, summary and query of each row of the reference page.
fn documented() -> BTreeSet<[String; 4]> {
    let text = include_str!("../../../../docs/reference/http-api.md");
    let rows =
        text.lines().filter(|line| line.starts_with("| `GET` | `/") || line.starts_with("| `PUT` | `/"));
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        [0, 1, 2, 3].map(|at| cells[at].replace('`', ""))
    })
    .collect()
}

#[test]
fn the_reference_page_has_every_endpoint_and_no_other() {
    let description: Value = serde_json::from_str(DESCRIPTION).unwrap();
    let mut described = BTreeSet::new();
    for (path, item) in description["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap().iter().filter(|(key, _)| *key != "parameters") {
            let lists = [&operation["parameters"], &item["parameters"]];
            let parameters = lists.into_iter().filter_map(Value::as_array).flatten();
            let query: Vec<&str> = parameters
                .filter(|parameter| parameter["in"] == "query")
                .map(|parameter| parameter["name"].as_str().unwrap())
                .collect();
            let summary = operation["summary"].as_str().unwrap().to_owned();
            described.insert([method.to_uppercase(), path.clone(), summary, query.join(", ")]);
        }
    }
    assert_eq!(documented(), described);
}

#[test]
fn every_schema_that_is_named_is_there() {
    let description: Value = serde_json::from_str(DESCRIPTION).unwrap();
    for reference in DESCRIPTION.split("\"#/components/schemas/").skip(1) {
        let name = reference.split('"').next().unwrap();
        assert!(description["components"]["schemas"][name].is_object(), "{name}");
    }
}

/// The answer has what the schema requires and nothing that it does not name.
fn check(description: &Value, schema: &Value, value: &Value, at: &str) {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.rsplit('/').next().unwrap();
        return check(description, &description["components"]["schemas"][name], value, at);
    }
    if let (Some(items), Some(values)) = (schema.get("items"), value.as_array()) {
        values.iter().for_each(|value| check(description, items, value, at));
    }
    let (Some(properties), Some(object)) = (schema["properties"].as_object(), value.as_object()) else {
        return;
    };
    for name in schema["required"].as_array().into_iter().flatten() {
        assert!(object.contains_key(name.as_str().unwrap()), "{at}: {name} is missing in {value}");
    }
    for (name, value) in object {
        let schema = properties.get(name).unwrap_or_else(|| panic!("{at}: {name} is not described"));
        check(description, schema, value, at);
    }
}

#[tokio::test]
async fn answers_are_as_described() {
    let fixture = Fixture::new();
    let description: Value = serde_json::from_str(DESCRIPTION).unwrap();
    for (path, ..) in ENDPOINTS
        .iter()
        .filter(|(.., endpoint)| !matches!(endpoint, Endpoint::Namespace | Endpoint::Description))
    {
        let path = format!("{PREFIX}{path}");
        let answer = fixture.get(&path, ADMIN).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}");
        let schema = &description["paths"][&path]["get"]["responses"]["200"]["content"]["application/json"];
        check(&description, &schema["schema"], &answer.json(), &path);
    }
    fixture.make(FileId::ROOT, b"a", CreateKind::Regular, 0o644).await;
    let answer = fixture.get("/api/v1/namespace/", ADMIN).await.json();
    check(&description, &description["components"]["schemas"]["Entry"], &answer["entries"][0], "an entry");
}

#[tokio::test]
async fn nobody_in_particular_reads_the_summary_and_nothing_else() {
    let fixture = Fixture::new();
    *fixture.instance.problems.lock() =
        vec![Problem { kind: "pool-offline", what: "/srv/disk".to_owned(), advice: "mount it".to_owned() }];
    let status = fixture.ask("GET", "/api/v1/status", &[]).await;
    assert_eq!(status.status, StatusCode::OK);
    assert_eq!(status.json()["clients"], 3);
    assert_eq!(status.json()["problems"], json!([{ "kind": "pool-offline" }]));
    assert!(!status.text.contains("secret"));
    for path in ["pools", "clients", "opens", "operations", "slow-operations", "log-levels"] {
        let answer = fixture.ask("GET", &format!("/api/v1/{path}"), &[]).await;
        assert_eq!(answer.error().0, 401, "{path}");
        assert!(answer.headers.contains_key("www-authenticate"));
    }
}

#[tokio::test]
async fn users_do_not_see_who_the_clients_are_and_administrators_do() {
    let fixture = Fixture::new();
    for path in ["clients", "opens", "slow-operations"] {
        let path = format!("/api/v1/{path}");
        let (user, admin) = (fixture.get(&path, ANN).await, fixture.get(&path, ADMIN).await);
        assert_eq!((user.status, admin.status), (StatusCode::OK, StatusCode::OK));
        assert!(!user.text.contains("secret") && !user.text.contains("192.0.2"), "{}", user.text);
        assert!(admin.text.contains("secret"), "{}", admin.text);
    }
}

#[tokio::test]
async fn paths_are_looked_up_for_administrators_and_for_what_is_shown() {
    let fixture = Fixture::new();
    let asked = || std::mem::take(&mut *fixture.instance.paths_asked.lock());
    fixture.get("/api/v1/opens", ANN).await;
    fixture.get("/api/v1/status", ADMIN).await;
    assert_eq!(fixture.get("/api/v1/opens?offset=1", ADMIN).await.json()["opens"], json!([]));
    assert_eq!(asked(), []);
    let answer = fixture.get("/api/v1/opens", ADMIN).await.json();
    assert_eq!(
        (answer["opens"][0]["path"].as_str(), &answer["total"]),
        (Some("/secret-dir/caf%E9"), &json!(2))
    );
    assert_eq!(asked(), [FileId(7)]);
}

#[tokio::test]
async fn a_wrong_token_is_refused_also_where_none_is_needed() {
    let fixture = Fixture::new();
    let answer = fixture.get("/api/v1/status", "Bearer wrong").await;
    assert_eq!(answer.error(), (401, "nobody knows this token".to_owned()));
    assert_eq!(fixture.get("/api/v1/status", "Nonsense").await.error().0, 401);
    assert_eq!(fixture.get("/api/v1/status", "Basic !").await.error().0, 400);
}

#[tokio::test]
async fn long_lists_come_in_parts() {
    let fixture = Fixture::new();
    let part = fixture.get("/api/v1/clients?offset=1&limit=1", ADMIN).await.json();
    assert_eq!(
        (part["total"].as_u64(), part["clients"][0]["name"].as_str()),
        (Some(3), Some("secret-host-1"))
    );
    assert_eq!(fixture.get("/api/v1/clients?offset=9", ADMIN).await.json()["clients"], json!([]));
    assert_eq!(
        fixture.get("/api/v1/clients?offset=18446744073709551615", ADMIN).await.status,
        StatusCode::OK
    );
    for query in ["limit=0", "limit=10001", "limit=x", "offset=-1", "offset=18446744073709551616"] {
        assert_eq!(fixture.get(&format!("/api/v1/clients?{query}"), ADMIN).await.error().0, 400, "{query}");
    }
}

#[tokio::test]
async fn the_namespace_is_seen_as_the_caller_may() {
    let fixture = Fixture::new();
    let shared = fixture.make(FileId::ROOT, b"shared", CreateKind::Directory, 0o755).await;
    let private = fixture.make(FileId::ROOT, b"private", CreateKind::Directory, 0o700).await;
    fixture.make(shared, b"\xff <b>", CreateKind::Regular, 0o644).await;
    fixture.make(private, b"file", CreateKind::Regular, 0o644).await;
    fixture.make_link(shared, b"zlink", "/private").await;

    let listing = fixture.get("/api/v1/namespace/shared", ANN).await.json();
    let entry = &listing["entries"][0];
    assert_eq!(
        (entry["path"].as_str(), entry["kind"].as_str()),
        (Some("/shared/%FF%20%3Cb%3E"), Some("file"))
    );
    assert_eq!((entry["name"].as_str(), entry["mode"].as_str()), (Some("\u{fffd} <b>"), Some("0644")));
    assert_eq!(entry["born_s"], 1.5);
    assert_eq!((listing["next"].is_null(), listing["path"].as_str()), (true, Some("/shared/")));
    let link = fixture.get("/api/v1/namespace/shared/zlink", ANN).await.json();
    assert_eq!((link["kind"].as_str(), link["target"].as_str()), (Some("symlink"), Some("/private")));

    let denied = fixture.get("/api/v1/namespace/private", ANN).await;
    assert_eq!(denied.error().0, 403);
    assert_eq!(fixture.get("/api/v1/namespace/private/file", ANN).await.error().0, 403);
    assert_eq!(fixture.ask("GET", "/api/v1/namespace/private", &[]).await.error().0, 401, "who are you?");
    let stat = fixture.get("/api/v1/namespace/private?list=false", ANN).await.json();
    assert_eq!((stat["kind"].as_str(), stat.get("entries")), (Some("directory"), None));
    assert_eq!(fixture.get("/api/v1/namespace/nothing", ANN).await.error().0, 404);
    assert_eq!(fixture.get("/api/v1/namespace/a/../b", ANN).await.error().0, 400);
}

#[tokio::test]
async fn a_credential_for_a_part_of_the_namespace_shows_that_part() {
    let fixture = Fixture::new();
    fixture.make(FileId::ROOT, b"shared", CreateKind::Directory, 0o755).await;
    fixture.make(FileId::ROOT, b"other", CreateKind::Directory, 0o755).await;
    assert_eq!(fixture.get("/api/v1/namespace/shared", GUEST).await.status, StatusCode::OK);
    assert_eq!(fixture.get("/api/v1/namespace/other", GUEST).await.error().0, 403);
    assert_eq!(
        fixture.get("/api/v1/namespace", GUEST).await.error().0,
        403,
        "the way may be walked, not listed"
    );
    assert_eq!(fixture.get("/api/v1/namespace?list=false", GUEST).await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_credential_bound_to_a_path_reads_nothing_of_the_whole_instance() {
    let fixture = Fixture::new();
    let description: Value = serde_json::from_str(DESCRIPTION).unwrap();
    let below = ["pools", "clients", "opens", "operations", "slow-operations", "log-levels"];
    for path in below.map(|name| format!("{PREFIX}{name}")).into_iter().chain(["/metrics".to_owned()]) {
        assert_eq!(fixture.get(&path, GUEST).await.error().0, 403, "{path}");
        let described = &description["paths"][&path]["get"]["responses"]["403"];
        assert!(described.is_object(), "{path}: 403 is not described");
    }
    *fixture.instance.problems.lock() =
        vec![Problem { kind: "pool-offline", what: "/srv/disk".to_owned(), advice: "mount it".to_owned() }];
    let status = fixture.get("/api/v1/status", GUEST).await;
    assert_eq!(status.json()["problems"], json!([{ "kind": "pool-offline" }]));
    for view in ["pools", "clients", "operations", "live/pools", "live/clients", "live/operations"] {
        let answer = fixture.get(&format!("/ui/{view}"), GUEST).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{view}");
    }
}

#[test]
fn the_description_says_which_log_levels_are_taken() {
    let description: Value = serde_json::from_str(DESCRIPTION).unwrap();
    let levels = &description["components"]["schemas"]["LogLevels"]["properties"];
    let (doors, clients) = (&levels["doors"], &levels["clients"]);
    assert!(doors["properties"].as_object().unwrap().keys().eq(["http", "nfs"]));
    assert_eq!(doors["additionalProperties"], false);
    assert_eq!(clients["propertyNames"], json!({ "anyOf": [{ "format": "ipv4" }, { "format": "ipv6" }] }));
    assert_eq!(clients["maxProperties"], crate::log::CLIENTS_MAX);
}

#[tokio::test]
async fn a_directory_is_listed_page_by_page() {
    let fixture = Fixture::new();
    for number in 0..5 {
        fixture.make(FileId::ROOT, format!("f{number}").as_bytes(), CreateKind::Regular, 0o644).await;
    }
    let (mut names, mut query) = (Vec::new(), "?limit=2".to_owned());
    loop {
        let page = fixture.get(&format!("/api/v1/namespace/{query}"), ANN).await.json();
        names.extend(page["entries"].as_array().unwrap().iter().map(|entry| entry["name"].to_string()));
        let Some(next) = page["next"].as_str() else { break };
        query = format!("?limit=2&after={next}");
    }
    names.sort();
    assert_eq!(names.len(), 5);
    names.dedup();
    assert_eq!(names.len(), 5);
}

#[tokio::test]
async fn administrators_set_log_levels_and_others_do_not() {
    let fixture = Fixture::new();
    let body = r#"{"level":"debug","clients":{"192.0.2.1":"trace"}}"#;
    let path = "/api/v1/log-levels";
    assert_eq!(fixture.put(path, &[], body).await.error().0, 401);
    assert_eq!(fixture.put(path, &[("authorization", ANN)], body).await.error().0, 403);
    assert_eq!(fixture.instance.levels.lock().level, None);
    let answer = fixture.put(path, &[("authorization", ADMIN)], body).await;
    assert_eq!((answer.status, answer.json()["level"].as_str()), (StatusCode::OK, Some("debug")));
    assert_eq!(fixture.get(path, ADMIN).await.json()["clients"]["192.0.2.1"], "trace");
    for bad in [
        "",
        "[]",
        " []",
        "{",
        r#"{"levle":"debug"}"#,
        r#"{"level":"loud"}"#,
        r#"{"clients":{"host":"debug"}}"#,
    ] {
        assert_eq!(fixture.put(path, &[("authorization", ADMIN)], bad).await.error().0, 400, "{bad}");
    }
    let long = " ".repeat(17 << 10);
    assert_eq!(fixture.put(path, &[("authorization", ADMIN)], &long).await.error().0, 413);
}

#[tokio::test]
async fn a_page_of_another_site_cannot_set_levels_with_somebodys_cookie() {
    let fixture = Fixture::new();
    let cookie = ("cookie", "forebay-session=admin");
    assert_eq!(fixture.put("/api/v1/log-levels", &[cookie], "{}").await.error().0, 401);
    let ours = [cookie, ("x-forebay-page", "1")];
    assert_eq!(fixture.put("/api/v1/log-levels", &ours, "{}").await.status, StatusCode::OK);
}

#[tokio::test]
async fn unknown_paths_are_404_and_wrong_methods_are_405() {
    let fixture = Fixture::new();
    for path in
        ["/api", "/api/", "/api/v1", "/api/v2/status", "/api/v1/", "/api/v1/statusx", "/api/v1/status/x"]
    {
        assert_eq!(fixture.get(path, ADMIN).await.error().0, 404, "{path}");
    }
    let answer = fixture.ask("DELETE", "/api/v1/log-levels", &[("authorization", ADMIN)]).await;
    assert_eq!((answer.status.as_u16(), &answer.headers["allow"]), (405, &"GET, HEAD, PUT".parse().unwrap()));
    let answer = fixture.ask("POST", "/api/v1/status", &[]).await;
    assert_eq!((answer.status.as_u16(), &answer.headers["allow"]), (405, &"GET, HEAD".parse().unwrap()));
}

#[tokio::test]
async fn the_description_is_for_everybody() {
    let answer = Fixture::new().ask("GET", "/api/v1/openapi.json", &[]).await;
    assert_eq!(answer.json()["openapi"], "3.1.0");
}
