//! The little of etcd that is needed: a lease, the key that is bound to it, and the ledger beside that. Through etcd's gateway
//! for JSON, `/v3/` (etcd 3.4 and later), without encryption: etcd belongs into the same protected network as the servers.
//!
//! Who creates the key has it until his lease ends, and the revision of etcd at which he did is his term: it grows with every
//! change in etcd. What is written to the ledger is written only if the writer still has the key, and a decision all or nothing,
//! by the transactions of [`isonomia_controller::journal`].
//!
//! Any of its endpoints will do. The one that answered last is asked first, so that one that is dead costs its time-out once.

use isonomia_controller::journal::{Record, Transaction};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A server of etcd that is there answers within this time.
const ANSWERED_WITHIN: Duration = Duration::from_secs(1);
/// Records that are read at once.
const PAGE: usize = 64;
/// The longest answer in bytes: so many of the longest records, in base 64.
const ANSWER_LEN_MAX: u64 = 128 << 20;

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EtcdError {
    /// None of its servers did it.
    #[error("etcd: {0}")]
    Away(String),
    /// Another server has the key.
    #[error("another server has become the controller")]
    Lost,
    /// It answers something else than what was asked for.
    #[error("etcd answers what is no answer: {0}")]
    Strange(&'static str),
}

/// A way to etcd.
pub struct Etcd {
    agent: ureq::Agent,
    endpoints: Vec<Arc<str>>,
    /// Which of them answered last.
    answered: AtomicUsize,
    /// What all keys begin with.
    prefix: String,
}

/// Who has the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The name of the server.
    pub server: String,
    /// The revision at which the key was made.
    pub term: u64,
    /// The lease that it is bound to.
    pub lease: u64,
}

impl Etcd {
    /// To the etcd at `endpoints`, of which any will do, for the cluster of this name.
    pub fn new(endpoints: Vec<Arc<str>>, cluster: &str) -> Self {
        let config = ureq::Agent::config_builder().timeout_global(Some(ANSWERED_WITHIN)).proxy(None);
        let (agent, answered) = (config.build().into(), AtomicUsize::new(0));
        Self { agent, endpoints, answered, prefix: format!("/isonomia/{cluster}/") }
    }

    fn call(&self, what: &str, body: &Value) -> Result<Value, EtcdError> {
        let mut trouble = String::new();
        let count = self.endpoints.len();
        let first = self.answered.load(Ordering::Relaxed);
        for at in (first..first + count).map(|at| at % count) {
            let endpoint = &self.endpoints[at];
            let answer = self.agent.post(format!("http://{endpoint}/v3/{what}")).send_json(body);
            let read = answer
                .and_then(|mut answer| answer.body_mut().with_config().limit(ANSWER_LEN_MAX).read_json::<Value>());
            match read {
                Ok(value) => {
                    self.answered.store(at, Ordering::Relaxed);
                    return Ok(value);
                }
                Err(error) => trouble = format!("{endpoint}: {error}"),
            }
        }
        Err(EtcdError::Away(trouble))
    }

    fn key(&self) -> String {
        encode(format!("{}controller", self.prefix).as_bytes())
    }

    fn ledger(&self) -> String {
        format!("{}ledger/", self.prefix)
    }

    /// A lease of so many seconds, or what etcd makes of that: its number.
    pub fn grant(&self, ttl_s: u64) -> Result<u64, EtcdError> {
        let answer = self.call("lease/grant", &json!({ "TTL": ttl_s.to_string() }))?;
        number(&answer["ID"]).ok_or(EtcdError::Strange("a lease without a number"))
    }

    /// Prolongs a lease; whether it is still there.
    pub fn keep_alive(&self, lease: u64) -> Result<bool, EtcdError> {
        let answer = self.call("lease/keepalive", &json!({ "ID": lease.to_string() }))?;
        Ok(number(&answer["result"]["TTL"]).is_some_and(|ttl| ttl > 0))
    }

    /// Ends a lease, and with it what is bound to it.
    pub fn revoke(&self, lease: u64) -> Result<(), EtcdError> {
        self.call("lease/revoke", &json!({ "ID": lease.to_string() })).map(drop)
    }

    /// Who has the key.
    pub fn holder(&self) -> Result<Option<Holder>, EtcdError> {
        let answer = self.call("kv/range", &json!({ "key": self.key() }))?;
        Ok(holder_of(&answer["kvs"][0]))
    }

    /// Makes the key for `server`, bound to `lease`, if nobody has it. Who has it then.
    pub fn claim(&self, server: &str, lease: u64) -> Result<Option<Holder>, EtcdError> {
        let key = self.key();
        let put =
            json!({ "request_put": { "key": key, "value": encode(server.as_bytes()), "lease": lease.to_string() } });
        let absent = json!({ "key": key, "target": "CREATE", "result": "EQUAL", "create_revision": "0" });
        self.call("kv/txn", &json!({ "compare": [absent], "success": [put], "failure": [] }))?;
        self.holder()
    }

    /// Makes changes of the ledger, all or none, if the key is still that of `term`.
    pub fn write(&self, term: u64, transaction: &Transaction) -> Result<(), EtcdError> {
        let ledger = self.ledger();
        let operation = |(name, value): &(Vec<u8>, Option<Vec<u8>>)| {
            let name = encode(&[ledger.as_bytes(), name].concat());
            match value {
                Some(value) => json!({ "request_put": { "key": name, "value": encode(value) } }),
                None => json!({ "request_delete_range": { "key": name } }),
            }
        };
        let operations: Vec<Value> = transaction.iter().map(operation).collect();
        let key = self.key();
        let own = json!({ "key": key, "target": "CREATE", "result": "EQUAL", "create_revision": term.to_string() });
        let answer = self.call("kv/txn", &json!({ "compare": [own], "success": operations, "failure": [] }))?;
        if answer["succeeded"] == json!(true) { Ok(()) } else { Err(EtcdError::Lost) }
    }

    /// All records of the ledger.
    pub fn records(&self) -> Result<Vec<Record>, EtcdError> {
        let ledger = self.ledger();
        let mut end = ledger.clone().into_bytes();
        // All keys with this prefix are before the one that ends in the byte behind its last.
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        let (mut from, mut records) = (ledger.clone().into_bytes(), Vec::new());
        loop {
            let wanted = json!({ "key": encode(&from), "range_end": encode(&end), "limit": PAGE.to_string() });
            let answer = self.call("kv/range", &wanted)?;
            for pair in answer["kvs"].as_array().into_iter().flatten() {
                let key = decode(&pair["key"]).ok_or(EtcdError::Strange("a record without a key"))?;
                let name =
                    key.strip_prefix(ledger.as_bytes()).ok_or(EtcdError::Strange("a record of something else"))?;
                records.push((name.to_vec(), decode(&pair["value"]).unwrap_or_default()));
                from = [&key[..], &[0]].concat();
            }
            if answer["more"] != json!(true) {
                return Ok(records);
            }
        }
    }
}

/// The gateway writes 64 bits as text.
fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

fn holder_of(pair: &Value) -> Option<Holder> {
    let server = String::from_utf8(decode(&pair["value"])?).ok()?;
    Some(Holder { server, term: number(&pair["create_revision"])?, lease: number(&pair["lease"]).unwrap_or(0) })
}

fn encode(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

fn decode(value: &Value) -> Option<Vec<u8>> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.decode(value.as_str()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_the_gateway_are_read() {
        let pair = json!({ "key": "a", "value": encode(b"io02"), "create_revision": "812", "lease": "7587" });
        assert_eq!(holder_of(&pair), Some(Holder { server: "io02".to_owned(), term: 812, lease: 7587 }));
        assert_eq!(holder_of(&Value::Null), None);
        assert_eq!((number(&json!("9")), number(&json!(9)), number(&json!("x"))), (Some(9), Some(9), None));
    }

    /// An etcd of which one endpoint takes connections and never answers, and the other one answers.
    #[test]
    fn the_endpoint_that_answered_is_asked_first() {
        use std::io::{BufRead, BufReader, Read, Write};
        use std::net::TcpListener;
        let [silent, sound] = std::array::from_fn(|_| TcpListener::bind("127.0.0.1:0").unwrap());
        let address = |listener: &TcpListener| listener.local_addr().unwrap().to_string().into();
        let etcd = Etcd::new(vec![address(&silent), address(&sound)], "s");
        let answers = std::thread::spawn(move || {
            for _ in 0..3 {
                let (mut stream, _) = sound.accept().unwrap();
                let mut request = BufReader::new(stream.try_clone().unwrap());
                let mut len = 0;
                loop {
                    let mut line = String::new();
                    request.read_line(&mut line).unwrap();
                    if let Some(told) = line.to_lowercase().strip_prefix("content-length:") {
                        len = told.trim().parse().unwrap();
                    }
                    if line.trim().is_empty() {
                        break;
                    }
                }
                request.take(len).read_to_end(&mut Vec::new()).unwrap();
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}").unwrap();
            }
        });
        (0..3).for_each(|_| assert_eq!(etcd.holder(), Ok(None)));
        answers.join().unwrap();
        // The silent one was asked once.
        silent.set_nonblocking(true).unwrap();
        assert_eq!((0..4).filter(|_| silent.accept().is_ok()).count(), 1);
    }

    #[test]
    fn an_etcd_that_is_away_is_named() {
        let etcd = Etcd::new(vec!["127.0.0.1:1".into()], "s");
        let error = etcd.holder().unwrap_err().to_string();
        assert!(error.starts_with("etcd: 127.0.0.1:1: "), "{error}");
    }
}
