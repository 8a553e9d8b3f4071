//! Seeing whether a server answers, in its own language: the clients' programs
//! need not be installed.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Version 3.0 of Postgres' protocol.
const VERSION: u32 = 196_608;

/// More than any message that we ask for; what is longer is not Postgres.
const MESSAGE_MAX: usize = 1 << 20;

fn connect(port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Whether Redis answers.
pub(super) fn redis(port: u16) -> io::Result<()> {
    let mut stream = connect(port)?;
    stream.write_all(b"PING\r\n")?;
    let mut answer = [0; 7];
    stream.read_exact(&mut answer)?;
    if &answer == b"+PONG\r\n" { Ok(()) } else { Err(strange("no answer of Redis")) }
}

/// What Postgres answers to a statement: the first column of each row.
pub(super) fn postgres(port: u16, role: &str, statement: &str) -> io::Result<Vec<String>> {
    ask(&mut connect(port)?, role, statement)
}

fn ask(stream: &mut (impl Read + Write), role: &str, statement: &str) -> io::Result<Vec<String>> {
    let mut start = VERSION.to_be_bytes().to_vec();
    start.extend(format!("user\0{role}\0database\0postgres\0\0").bytes());
    send(stream, None, &start)?;
    until_ready(stream)?;
    send(stream, Some(b'Q'), format!("{statement}\0").as_bytes())?;
    let rows = until_ready(stream)?;
    send(stream, Some(b'X'), &[])?;
    Ok(rows)
}

/// A message: its kind, but for the first, then its length with that of the
/// length itself, then its body.
fn send(stream: &mut impl Write, kind: Option<u8>, body: &[u8]) -> io::Result<()> {
    let length = u32::try_from(body.len() + 4).map_err(|_| strange("too long a message"))?;
    let mut message: Vec<u8> = kind.into_iter().collect();
    message.extend(length.to_be_bytes());
    message.extend(body);
    stream.write_all(&message)
}

/// Reads messages until the server waits for us: the first column of each row.
fn until_ready(stream: &mut impl Read) -> io::Result<Vec<String>> {
    let mut rows = Vec::new();
    loop {
        let mut head = [0; 5];
        stream.read_exact(&mut head)?;
        let [kind, length @ ..] = head;
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        let length = length.checked_sub(4).filter(|length| *length <= MESSAGE_MAX);
        let mut body = vec![0; length.ok_or_else(|| strange("no message of Postgres"))?];
        stream.read_exact(&mut body)?;
        match kind {
            b'Z' => return Ok(rows),
            b'E' => return Err(io::Error::other(String::from_utf8_lossy(&body).replace('\0', " "))),
            b'R' if body.iter().any(|byte| *byte != 0) => return Err(strange("Postgres asks for a password")),
            b'D' => rows.push(first_column(&body).ok_or_else(|| strange("no row of Postgres"))?),
            _ => {}
        }
    }
}

/// A row: how many columns, then each column's length and text.
fn first_column(row: &[u8]) -> Option<String> {
    let (_, columns) = row.split_first_chunk::<2>()?;
    let (length, text) = columns.split_first_chunk::<4>()?;
    let text = text.get(..usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
    String::from_utf8(text.to_vec()).ok()
}

fn strange(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that says what it was going to say, whatever it hears.
    struct Canned {
        says: io::Cursor<Vec<u8>>,
        heard: Vec<u8>,
    }

    impl Canned {
        fn new(messages: &[(u8, &[u8])]) -> Self {
            let mut says = Vec::new();
            for (kind, body) in messages {
                send(&mut says, Some(*kind), body).expect("a message");
            }
            Self { says: io::Cursor::new(says), heard: Vec::new() }
        }
    }

    impl Read for Canned {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.says.read(into)
        }
    }

    impl Write for Canned {
        fn write(&mut self, from: &[u8]) -> io::Result<usize> {
            self.heard.write(from)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn rows_are_read_and_the_rest_is_passed_over() {
        let mut server = Canned::new(&[
            (b'R', &[0; 4]),
            (b'S', b"server_version\x0015\0"),
            (b'Z', b"I"),
            (b'T', b"whatever"),
            (b'D', b"\0\x01\0\0\0\x06hstore"),
            (b'D', b"\0\x02\0\0\0\x01a\0\0\0\x01b"),
            (b'C', b"SELECT 2\0"),
            (b'Z', b"I"),
        ]);
        assert_eq!(ask(&mut server, "me", "select 1").expect("rows"), ["hstore", "a"]);
        let start = b"\0\0\0\x23\0\x03\0\0user\0me\0database\0postgres\0\0";
        let start = [&[0, 0, 0, u8::try_from(start.len()).expect("short")], &start[4..]].concat();
        let rest = b"Q\0\0\0\x0dselect 1\0X\0\0\0\x04";
        assert_eq!(server.heard, [&start[..], rest].concat());
    }

    #[test]
    fn a_server_that_is_not_ready_does_not_answer() {
        let mut server = Canned::new(&[(b'E', b"SFATAL\0Mthe database system is starting up\0\0")]);
        let error = ask(&mut server, "me", "select 1").expect_err("not ready");
        assert!(error.to_string().contains("starting up"), "{error}");
    }

    #[test]
    fn a_server_that_asks_for_a_password_is_not_ours() {
        let mut server = Canned::new(&[(b'R', &[0, 0, 0, 5, 1, 2, 3, 4])]);
        assert!(ask(&mut server, "me", "select 1").is_err());
    }

    #[test]
    fn what_is_not_postgres_is_an_error() {
        for said in [&b"HTTP/1.1 400 Bad Request\r\n"[..], b"Z\0\0\0\x01", b"Z\0\0", b"D\0\0\0\x06\0\x01"] {
            let mut server = Canned { says: io::Cursor::new(said.to_vec()), heard: Vec::new() };
            assert!(ask(&mut server, "me", "select 1").is_err(), "{said:?}");
        }
    }
}
