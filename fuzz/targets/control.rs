//! What operators send and write: control questions in JSON, and the configuration file.

#![no_main]

use isonomia_proto::control::ControlRequest;
use isonomia_server::Config;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(request) = serde_json::from_slice::<ControlRequest>(bytes) {
        let again = serde_json::to_vec(&request).expect("questions serialize");
        assert_eq!(serde_json::from_slice::<ControlRequest>(&again).ok(), Some(request));
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = toml::from_str::<Config>(text);
    }
});
