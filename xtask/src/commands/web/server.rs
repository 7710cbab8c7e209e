//! A server of the page's files, for this machine alone.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context, Result};

use crate::exec::workspace;

/// Where the MiniLM example keeps its model, and the files that the page may have of it.
const MODEL: &str = "target/minilm";
const MODEL_FILES: [&str; 2] = ["model.safetensors", "tokenizer.json"];

/// Largest report in bytes.
const LARGEST_REPORT: u64 = 1 << 20;
/// Most lines of a request's head, and their longest length.
const LINES: usize = 100;
const LONGEST_LINE: u64 = 8 << 10;
/// A browser opens connections that it never uses.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) struct Server {
    address: SocketAddr,
    reports: Receiver<String>,
    thread: JoinHandle<()>,
}

impl Server {
    /// Serves the files of this folder on a port of the loopback address; 0 is any free port.
    pub(super) fn start(page: PathBuf, port: u16) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        let listener = listener.with_context(|| format!("cannot listen on port {port}"))?;
        let address = listener.local_addr()?;
        let (sender, reports) = mpsc::channel();
        let page = Arc::new(page);
        let thread = thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (page, sender) = (page.clone(), sender.clone());
                // A connection that breaks is the browser's business.
                thread::spawn(move || answer(&stream, &page, &sender).ok());
            }
        });
        Ok(Self {
            address,
            reports,
            thread,
        })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Query of the page's address that offers the model, if it is there.
    pub(super) fn query(&self) -> &'static str {
        if self.has_model() { "?model" } else { "" }
    }

    /// True if the files of the MiniLM example are there.
    pub(super) fn has_model(&self) -> bool {
        let folder = workspace().join(MODEL);
        MODEL_FILES.iter().all(|name| folder.join(name).is_file())
    }

    /// The next report of a page, if there is one within this time.
    pub(super) fn report(&self, within: Duration) -> Option<String> {
        self.reports.recv_timeout(within).ok()
    }

    /// Serves until the process ends.
    pub(super) fn wait(self) {
        // The thread ends with the process.
        let _ = self.thread.join();
    }
}

/// A request, as far as it matters here.
#[derive(Debug, PartialEq)]
struct Request {
    method: String,
    /// The path without its first slash and its query.
    path: String,
    /// Bytes of the body.
    length: u64,
}

impl Request {
    fn read(reader: &mut impl BufRead) -> Option<Self> {
        let mut line = || {
            let mut line = String::new();
            let mut limited = reader.take(LONGEST_LINE);
            let count = limited.read_line(&mut line).ok()?;
            (count > 0).then(|| line.trim_end().to_owned())
        };
        let first = line()?;
        let mut words = first.split(' ');
        let (method, target) = (words.next()?, words.next()?);
        let path = target.split(['?', '#']).next()?.strip_prefix('/')?;
        let mut request = Self {
            method: method.to_owned(),
            path: path.to_owned(),
            length: 0,
        };
        for _ in 0..LINES {
            let header = line()?;
            if header.is_empty() {
                return Some(request);
            }
            if let Some((name, value)) = header.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                request.length = value.trim().parse().ok()?;
            }
        }
        None
    }
}

fn answer(stream: &TcpStream, page: &Path, reports: &Sender<String>) -> Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(stream);
    let Some(request) = Request::read(&mut reader) else {
        return respond(stream, "400 Bad Request", "text/plain", b"");
    };
    match (request.method.as_str(), request.path.as_str()) {
        ("POST", "report") if request.length <= LARGEST_REPORT => {
            let mut body = Vec::new();
            reader.take(request.length).read_to_end(&mut body)?;
            // The receiver is gone if the check has ended.
            let _ = reports.send(String::from_utf8(body)?);
            respond(stream, "204 No Content", "text/plain", b"")
        }
        ("GET", path) => match file(page, path) {
            Some(file) => {
                let content = fs::read(&file)?;
                respond(stream, "200 OK", kind(&file), &content)
            }
            None => respond(stream, "404 Not Found", "text/plain", b"not found"),
        },
        _ => respond(stream, "405 Method Not Allowed", "text/plain", b""),
    }
}

/// The file of a path: one of the page, or one of the model. Nothing else can be read.
fn file(page: &Path, path: &str) -> Option<PathBuf> {
    if let Some(name) = path.strip_prefix("model/") {
        let file = workspace().join(MODEL).join(name);
        return (MODEL_FILES.contains(&name) && file.is_file()).then_some(file);
    }
    let name = if path.is_empty() { "index.html" } else { path };
    let mut entries = fs::read_dir(page).ok()?.flatten();
    let entry = entries.find(|entry| entry.file_name() == name)?;
    Some(entry.path())
}

fn kind(file: &Path) -> &'static str {
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("json") => "application/json",
        Some("wasm") => "application/wasm",
        _ => "application/octet-stream",
    }
}

fn respond(mut stream: &TcpStream, status: &str, kind: &str, content: &[u8]) -> Result<()> {
    let length = content.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(content)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_without_their_query() {
        let text = "POST /report?x=1 HTTP/1.1\r\nHost: x\r\ncontent-length: 12\r\n\r\nbody";
        let request = Request::read(&mut text.as_bytes());
        let expected = Request {
            method: "POST".to_owned(),
            path: "report".to_owned(),
            length: 12,
        };
        assert_eq!(request, Some(expected));
        for broken in ["", "GET\r\n\r\n", "GET / HTTP/1.1\r\nHost: x"] {
            assert_eq!(Request::read(&mut broken.as_bytes()), None, "{broken:?}");
        }
    }

    #[test]
    fn only_files_of_the_page_are_served() {
        let page = workspace().join("examples/browser/page");
        assert_eq!(file(&page, ""), Some(page.join("index.html")));
        for path in [
            "../Cargo.toml",
            "model/../minilm/config.json",
            "page/main.js",
            "/etc/passwd",
        ] {
            assert_eq!(file(&page, path), None, "{path}");
        }
    }
}
