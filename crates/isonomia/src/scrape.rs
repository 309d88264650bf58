//! The HTTP endpoint that Prometheus scrapes.
//!
//! One thread, at most [`CONNECTIONS_MAX`] connections, one request each, with bounds on its size and its time.
//! It answers `GET /metrics` and nothing else.

use crate::metrics;
use anyhow::{Context, Result};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use isonomia_proto::control::Status;
use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};

/// Connections beyond these wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 16;
/// Room for a request's head: the smallest that hyper allows.
const HEAD_LEN_MAX: usize = 8 << 10;
/// From accepting a connection to the end of the reply.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(10);
/// After a failed accept (descriptors exhausted, say), before the next.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
const OPEN_METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

/// A running endpoint; it ends when this is dropped.
pub struct Endpoint {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Endpoint {
    /// Listens at `address`; `status` gives the state that a scrape shows.
    pub fn start(address: SocketAddr, status: impl Fn() -> Status + Send + Sync + 'static) -> Result<Self> {
        let listener = TcpListener::bind(address).with_context(|| format!("cannot serve metrics at {address}"))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("metrics".into()).spawn(move || {
            runtime.spawn(accept_all(listener, Arc::new(status)));
            // Whether told to stop or left alone by the sender: dropping the runtime ends every connection.
            let _ = runtime.block_on(stopped);
        })?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens, with the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // The thread may have ended by itself; then nobody receives, and joining reports nothing of use.
        let _ = self.stop.take().map(|stop| stop.send(()));
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

async fn accept_all(listener: TcpListener, status: Arc<impl Fn() -> Status + Send + Sync + 'static>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "metrics are not served"),
    };
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    // The semaphore is never closed.
    while let Ok(slot) = Arc::clone(&slots).acquire_owned().await {
        let socket = match listener.accept().await {
            Ok((socket, _)) => socket,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection for metrics");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let status = Arc::clone(&status);
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let reply = answer(&request, &*status);
                async { Ok::<_, Infallible>(reply) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .keep_alive(false)
                .max_buf_size(HEAD_LEN_MAX)
                .serve_connection(TokioIo::new(socket), service);
            match tokio::time::timeout(CONNECTION_TIME_MAX, connection).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%error, "a scrape broke off"),
                Err(_) => tracing::debug!("a scrape took too long"),
            }
            drop(slot);
        });
    }
}

fn answer(request: &Request<Incoming>, status: &impl Fn() -> Status) -> Response<Full<Bytes>> {
    let plain = |code: StatusCode, text: &'static str| {
        let mut response = Response::new(Full::from(text));
        *response.status_mut() = code;
        response
    };
    if request.uri().path() != "/metrics" {
        return plain(StatusCode::NOT_FOUND, "only /metrics is here\n");
    }
    if request.method() != Method::GET {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET is allowed\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
        return response;
    }
    match metrics::render(status()) {
        Ok(text) => {
            let mut response = Response::new(Full::from(text));
            response.headers_mut().insert(CONTENT_TYPE, OPEN_METRICS);
            response
        }
        Err(error) => {
            tracing::error!(%error, "cannot render metrics");
            plain(StatusCode::INTERNAL_SERVER_ERROR, "cannot render metrics\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::tests::sample_status;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut socket = TcpStream::connect(address).unwrap();
        // The server may refuse, and close, before it has read everything.
        let _ = socket.write_all(request);
        let mut reply = Vec::new();
        let _ = socket.read_to_end(&mut reply);
        String::from_utf8_lossy(&reply).into_owned()
    }

    #[test]
    fn only_metrics_are_served_and_heads_are_bounded() {
        let endpoint = Endpoint::start("127.0.0.1:0".parse().unwrap(), sample_status).unwrap();
        let get = |path: &str| ask(endpoint.address(), format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes());
        let reply = get("/metrics");
        assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
        assert!(reply.contains("application/openmetrics-text"), "{reply}");
        assert!(reply.contains("isonomia_server_uptime_seconds 61.25"), "{reply}");
        assert!(get("/").starts_with("HTTP/1.1 404"));
        let reply = ask(endpoint.address(), b"POST /metrics HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n");
        assert!(reply.starts_with("HTTP/1.1 405"), "{reply}");
        let long = format!("GET /metrics HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "y".repeat(2 * HEAD_LEN_MAX));
        let reply = ask(endpoint.address(), long.as_bytes());
        assert!(!reply.starts_with("HTTP/1.1 200"), "{reply}");
    }

    #[test]
    fn connections_that_say_nothing_do_not_stop_a_scrape() {
        let endpoint = Endpoint::start("127.0.0.1:0".parse().unwrap(), sample_status).unwrap();
        let silent: Vec<_> =
            (0..CONNECTIONS_MAX - 1).map(|_| TcpStream::connect(endpoint.address()).unwrap()).collect();
        assert!(ask(endpoint.address(), b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n").starts_with("HTTP/1.1 200"));
        drop(silent);
    }
}
