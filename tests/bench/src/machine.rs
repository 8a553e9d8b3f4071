//! On what the figures were measured.

use std::time::Duration;

use crate::Fault;
use crate::place;

/// Settings without which a commit on Postgres is not durable.
const DURABLE: [&str; 3] = ["fsync", "synchronous_commit", "full_page_writes"];

/// A line about the machine.
pub(crate) fn note() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map_or("?", |(_, m)| m);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory: u64 = field(&read("/proc/meminfo"), "MemTotal:").unwrap_or_default() / 1024;
    let build = if cfg!(debug_assertions) { "DEBUG build: figures mean nothing" } else { "release build" };
    format!("{cores} cores, {model}, {memory} MiB, {} {}; {build}", std::env::consts::OS, std::env::consts::ARCH)
}

/// A line about the Postgres server.
pub(crate) async fn postgres(server: &str) -> Result<String, Fault> {
    let mut connection = place::connect(server).await?;
    let version: String = sqlx::query_scalar("SHOW server_version").fetch_one(&mut connection).await?;
    let mut settings = Vec::new();
    for name in DURABLE {
        let value: String =
            sqlx::query_scalar("SELECT current_setting($1)").bind(name).fetch_one(&mut connection).await?;
        settings.push((name, value));
    }
    let note = if settings.iter().all(|(_, value)| value == "on") { "" } else { "; NOT durable: figures mean nothing" };
    let settings: Vec<_> = settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
    Ok(format!("Postgres {version}, {}{note}", settings.join(" ")))
}

/// Memory of this process, in MiB.
pub(crate) fn rss_mib() -> Result<f64, Fault> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let kib = field(&status, "VmRSS:").ok_or("the system does not say how much memory we have")?;
    Ok(f64::from(u32::try_from(kib)?) / 1024.0)
}

/// The number behind a name, in KiB.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
}

/// Milliseconds.
pub(crate) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
