//! What a session is told of its mappings: any bytes are news or not, and news means the same when sent again.

#![no_main]

use isonomia_proto::mapping::{NEWS_LEN_MAX, News, WANTED_MAX};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some(news) = News::decode(bytes) else { return };
    assert!(bytes.len() <= NEWS_LEN_MAX && news.wanted.len() <= WANTED_MAX);
    assert_eq!(news.encode(), bytes);
});
