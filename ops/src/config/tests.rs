//! What configurations mean, and what is said about those that mean nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use countersign_notifier::SmtpSecurity;

use super::*;

fn nothing(_: &str) -> Option<String> {
    None
}

fn parse(text: &str) -> Result<Config, ConfigErrors> {
    Config::parse(text, FILE_NAME, &nothing)
}

fn parse_with(text: &str, variables: &[(&str, &str)]) -> Result<Config, ConfigErrors> {
    let lookup = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    Config::parse(text, FILE_NAME, &lookup)
}

/// The reference with its examples switched on.
fn examples() -> String {
    let line = |line: &str| match line.strip_prefix('#') {
        // The example of a file that exists nowhere.
        Some(rest) if rest.starts_with("ca_file") => String::new(),
        Some(rest) if rest.starts_with(|c: char| c == '[' || c.is_ascii_lowercase()) => rest.to_owned(),
        _ => line.to_owned(),
    };
    DEFAULT_FILE.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_reference_file_holds_the_defaults() {
    assert_eq!(parse(DEFAULT_FILE).expect("valid"), Config::default());
    assert_eq!(parse("").expect("valid"), Config::default());
}

#[test]
fn the_reference_file_shows_every_setting_and_its_examples_work() {
    let (config, asked) = Config::parse_asked(&examples(), FILE_NAME, &nothing);
    let config = config.expect("valid examples");
    assert_eq!(config.base_url.as_deref(), Some("https://approvals.example.com"));
    assert_eq!(config.people[0].roles, ["finance", "manager"]);
    assert_eq!(config.email.smtp.as_ref().map(|smtp| smtp.port), Some(587));
    assert!(config.webhooks[0].endpoint().is_ok());
    let shown: BTreeSet<&str> = DEFAULT_FILE
        .lines()
        .filter_map(|line| line.trim_start_matches('#').split_once(" = "))
        .map(|(key, _)| key)
        .filter(|key| !key.contains(' '))
        .collect();
    let asked: BTreeSet<&str> = asked.iter().filter_map(|path| path.rsplit('.').next()).collect();
    assert_eq!(shown, asked);
}

#[test]
fn all_faults_come_at_once_each_with_place_and_remedy() {
    let text = r#"
        listen = "localhost"
        dat_dir = "x"
        trusted_proxies = ["proxy"]
        base_url = "https://example.com/path"
        [limits]
        body_bytes = -1
        payload_bytes = "big"
        [worker]
        concurrency = 0
        [email]
        from = "nobody"
        [email.smtp]
        security = "ssl"
        username = "me"
        [[webhooks]]
        name = "erp"
        url = "https://erp.example.com"
        [[webhooks]]
        name = "erp"
        url = "nowhere"
        secrets = ["whsec_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"]
        [[people]]
        email = "ann@example.com"
        [[people]]
        email = "ANN@example.com"
        role = ["x"]
    "#;
    let errors = parse_with(text, &[("COUNTERSIGN_LINKS_VALID_FOR_HOURS", "soon")]).expect_err("faults");
    let places: Vec<&str> = errors.faults().iter().map(|fault| fault.place.as_str()).collect();
    let expected = [
        "`listen` in countersign.toml",
        "`base_url` in countersign.toml",
        "`trusted_proxies` in countersign.toml",
        "`limits.body_bytes` in countersign.toml",
        "`limits.payload_bytes` in countersign.toml",
        "`worker.concurrency` in countersign.toml",
        "variable COUNTERSIGN_LINKS_VALID_FOR_HOURS",
        "`email.from` in countersign.toml",
        "`email.smtp.security` in countersign.toml",
        "`email.smtp.username` in countersign.toml",
        "`email.smtp.host` in countersign.toml",
        "`webhooks[1].secrets` in countersign.toml",
        "`webhooks[2].name` in countersign.toml",
        "`webhooks[2].name` in countersign.toml",
        "`people[2].role` in countersign.toml",
        "`people[2].email` in countersign.toml",
        "`dat_dir` in countersign.toml",
    ];
    assert_eq!(places, expected, "{errors}");
    let said = errors.to_string();
    assert!(said.contains("17 things are wrong"), "{said}");
    assert!(said.contains("known here: listen, data_dir"), "{said}");
    assert!(said.contains("`-1` is out of range; write a whole number from 1024"), "{said}");
}

#[test]
fn what_is_there_and_wrong_is_not_called_missing_besides() {
    let text = r#"
        [[webhooks]]
        name = "e r p"
        url = 1
        [[webhooks]]
        secrets = ["whsec_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"]
        [[people]]
        email = "ann"
        [[people]]
        name = "Ben"
    "#;
    let errors = parse_with(text, &[]).expect_err("faults");
    let places: Vec<&str> = errors.faults().iter().map(|fault| fault.place.as_str()).collect();
    let expected = [
        "`webhooks[1].name` in countersign.toml",
        "`webhooks[1].url` in countersign.toml",
        "`webhooks[2].name` in countersign.toml",
        "`webhooks[2].url` in countersign.toml",
        "`people[1].email` in countersign.toml",
        "`people[2].email` in countersign.toml",
    ];
    assert_eq!(places, expected, "{errors}");
}

#[test]
fn a_file_that_is_no_toml_is_named_with_its_line_and_without_its_text() {
    let text = "listen = \"127.0.0.1:1\"\n[email.smtp]\npassword = \"hunter2\n";
    let errors = parse_with(text, &[("COUNTERSIGN_LISTEN", "x")]).expect_err("faults");
    assert_eq!(errors.faults().len(), 2, "{errors}");
    assert!(errors.faults()[0].place.starts_with("countersign.toml, line 3"), "{errors}");
    assert!(!errors.to_string().contains("hunter2"), "{errors}");
}

#[test]
fn variables_win_over_the_file_and_empty_ones_are_not_set() {
    let text = "listen = \"127.0.0.1:1\"\ndata_dir = \"a\"\n[worker]\nmax_attempts = 2";
    let variables = [
        ("COUNTERSIGN_LISTEN", "[::1]:9000"),
        ("COUNTERSIGN_DATA", " "),
        ("COUNTERSIGN_TRUSTED_PROXIES", "10.0.0.0/8, ::1"),
        ("COUNTERSIGN_WORKER_POLL_INTERVAL_MS", "250"),
        ("COUNTERSIGN_EMAIL_SMTP_HOST", "mail.example.com"),
        ("COUNTERSIGN_EMAIL_SMTP_SECURITY", "tls"),
    ];
    let config = parse_with(text, &variables).expect("valid");
    assert_eq!(config.listen.to_string(), "[::1]:9000");
    assert_eq!(config.data_dir, PathBuf::from("a"));
    assert_eq!(config.trusted_proxies.len(), 2);
    assert_eq!((config.worker.max_attempts, config.worker.poll_interval), (2, Duration::from_millis(250)));
    let smtp = config.email.smtp.expect("a server by variable");
    assert_eq!((smtp.host.as_str(), smtp.port, smtp.security), ("mail.example.com", 465, SmtpSecurity::Tls));
}

/// Variables whose names are known, as those of a process are.
struct Named(&'static [&'static str]);

impl Variables for Named {
    fn get(&self, name: &str) -> Option<String> {
        self.0.contains(&name).then(|| "1".to_owned())
    }

    fn names(&self) -> Vec<String> {
        self.0.iter().map(|name| (*name).to_owned()).collect()
    }
}

#[test]
fn variables_that_are_no_settings_are_faults() {
    let said = |text: &str, names: &'static [&'static str]| match Config::parse(text, FILE_NAME, &Named(names)) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.faults().iter().map(ToString::to_string).collect::<Vec<_>>(),
    };
    let said_of = said("", &["COUNTERSIGN_LISTN", "HOME", "COUNTERSIGN_WORKER_EVENTS", "COUNTERSIGN_COLOUR"]);
    assert_eq!(said_of.len(), 2, "{said_of:?}");
    assert!(said_of[0].starts_with("variable COUNTERSIGN_COLOUR: there is no such setting; correct or remove it"));
    assert!(said_of[1].ends_with("did you mean COUNTERSIGN_LISTEN? Else remove it"), "{said_of:?}");
    // What else begins so: the command line's, those of a mail server that is
    // not named, and what orchestrators set for a service of this name.
    let others = &[
        "COUNTERSIGN_SERVER",
        "COUNTERSIGN_TOKEN",
        "COUNTERSIGN_CONFIG",
        "COUNTERSIGN_BIN",
        "COUNTERSIGN_TEST_POSTGRES",
        "COUNTERSIGN_TEST_REDIS",
        "COUNTERSIGN_EMAIL_SMTP_PORT",
        "COUNTERSIGN_EMAIL_SMTP_SECURITY",
        "COUNTERSIGN_EMAIL_SMTP_USERNAME",
        "COUNTERSIGN_EMAIL_SMTP_PASSWORD",
        "COUNTERSIGN_EMAIL_SMTP_CA_FILE",
        "COUNTERSIGN_SERVICE_HOST",
        "COUNTERSIGN_PORT_8420_TCP",
    ];
    assert_eq!(said("", others), [] as [&str; 0]);
    // An endpoint's secrets are known by its name, as long as the file is read.
    let names = &["COUNTERSIGN_WEBHOOKS_ERP_SECRETS"];
    let endpoint = "[[webhooks]]\nname = \"erp\"\nurl = \"https://erp.example.com\"";
    for (text, faults) in [("", true), (endpoint, false), ("listen = ", false)] {
        let said = said(text, names);
        assert_eq!(said.iter().any(|fault| fault.contains("no such setting")), faults, "{text}: {said:?}");
    }
}

#[test]
fn secrets_do_not_print() {
    let text = r#"
        [email.smtp]
        host = "mail.example.com"
        username = "me"
        [[webhooks]]
        name = "e.r-p"
        url = "https://erp.example.com"
    "#;
    let variables = [
        ("COUNTERSIGN_EMAIL_SMTP_PASSWORD", "hunter2"),
        ("COUNTERSIGN_WEBHOOKS_E_R_P_SECRETS", "whsec_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"),
    ];
    let config = parse_with(text, &variables).expect("valid");
    assert_eq!(config.webhooks[0].secrets.len(), 1);
    let printed = format!("{config:?}");
    assert!(!printed.contains("hunter2") && !printed.contains("c2VjcmV0"), "{printed}");
    let wrong = parse_with(text, &[variables[0], (variables[1].0, "whsec_hunter3!")]).expect_err("no secret");
    assert!(!wrong.to_string().contains("hunter"), "{wrong}");
}

#[test]
fn the_store_is_a_url_whose_password_does_not_print() {
    let url = "postgres://ann:hunter2@db.example.com/cases";
    let config = parse_with("[store]\nconnections = 20", &[("COUNTERSIGN_STORE_URL", url)]).expect("valid");
    assert_eq!(config.store.connections, 20);
    assert_eq!(config.store.place.shown(&config.data_dir), "postgres://ann@db.example.com/cases");
    assert!(!format!("{config:?}").contains("hunter2"), "{config:?}");
    for (name, text) in [
        ("store", "[store]\nurl = \"mysql://ann:hunter2@db/cases\""),
        ("store", "[store]\nurl = \"postgres://ann:hunter2@db/cases?sslmod=off\""),
        ("queue", "[queue]\nurl = \"redis://:hunter2@cache/x\""),
        ("queue", "[queue]\nurl = \"postgres://ann:hunter2@db/cases\""),
    ] {
        let errors = parse(text).expect_err("no store");
        assert_eq!(errors.faults().len(), 1, "{errors}");
        assert_eq!(errors.faults()[0].place, format!("`{name}.url` in countersign.toml"));
        assert!(!errors.to_string().contains("hunter2"), "{errors}");
    }
    let folder = parse("").expect("valid").store.place.shown(Path::new("x"));
    assert_eq!(folder, format!("sqlite:{}", Path::new("x").join(DATABASE_FILE).display()));
}

#[test]
fn the_queue_is_the_stores_or_a_redis() {
    let config = parse("").expect("valid");
    assert!(config.queue.redis().is_none() && config.queue.place.shown().is_none());
    let url = [("COUNTERSIGN_QUEUE_URL", "rediss://:hunter2@cache/3")];
    let config = parse_with("[queue]\nprefix = \"team-a\"", &url).expect("valid");
    assert_eq!(config.queue.place.shown(), Some("rediss://cache:6379/3"));
    assert!(config.queue.redis().is_some_and(|redis| redis.to_string() == "rediss://cache:6379/3"));
    assert!(!format!("{config:?}").contains("hunter2"), "{config:?}");
    let errors = parse("[queue]\nprefix = \"a b\"").expect_err("no prefix");
    assert!(errors.to_string().contains("`queue.prefix`"), "{errors}");
}

#[test]
fn a_named_file_must_exist_and_the_usual_one_need_not() {
    let errors = Config::load(Some(Path::new("no/such/file.toml")), &nothing).expect_err("missing");
    assert!(errors.to_string().contains("no/such/file.toml: the file cannot be read"), "{errors}");
    assert!(Config::load(None, &nothing).is_ok());
}

#[test]
fn links_point_to_where_up_listens() {
    let bound: SocketAddr = "127.0.0.1:55555".parse().expect("address");
    let url = |listen: &str| parse_with("", &[("COUNTERSIGN_LISTEN", listen)]).expect("valid").public_url(bound);
    assert_eq!(Config::default().public_url(bound), "http://127.0.0.1:8420");
    assert_eq!(url("127.0.0.1:0"), "http://127.0.0.1:55555");
    assert_eq!(url("0.0.0.0:80"), "http://localhost:80");
    assert_eq!(url("[::1]:80"), "http://[::1]:80");
}
