//! Pulls from servers that are good, slow, killed, wrong or changed.

use types::ChecksumKind;

use super::memory::sums;
use super::*;

fn published(end: End, bytes: &[u8]) -> Vec<types::Checksum> {
    match end {
        End::Published { bytes: got, checksums } => {
            assert!(got == bytes, "{} bytes are not the {} of the source", got.len(), bytes.len());
            checksums
        }
        End::LeftNothing => panic!("nothing was published"),
    }
}

#[tokio::test]
async fn a_pull_is_complete_and_verified_before_success_is_said() {
    let peer = Peer::start(Some(&data()), Whims { token: Some("t"), ..Whims::default() }).await;
    let (text, end, _) = pull(&peer, &[("transferheaderauthorization", "Bearer t")]).await;
    assert_eq!(last_line(&text), "success: Created", "{text}");
    assert!(text.starts_with("Perf Marker\n    Timestamp: "));
    assert!(text.contains(&format!("Stripe Bytes Transferred: {}\n", data().len())));
    assert!(text.contains(&format!("RemoteConnections: tcp:{}\n", &peer.url[7..peer.url.len() - 2])));
    let checksums = published(end, &data());
    // The kinds that the target keeps, that the source told, and that cost nothing.
    for sum in sums(&[ChecksumKind::Adler32, ChecksumKind::Crc32c, ChecksumKind::Md5], &data()) {
        assert!(checksums.contains(&sum), "{sum}");
    }
    assert_eq!(peer.asked().len(), 1, "the GET told the checksum");
    assert!(peer.asked()[0].contains("want-digest: adler32;q=1, "));
}

#[tokio::test]
async fn an_empty_file_is_a_file() {
    let peer = Peer::start(Some(b""), Whims::default()).await;
    for streams in ["1", "4"] {
        let (text, end, _) = pull(&peer, &[("x-number-of-streams", streams)]).await;
        assert_eq!(last_line(&text), "success: Created");
        published(end, b"");
    }
}

#[tokio::test]
async fn several_streams_fetch_parts_and_their_checksums_are_combined() {
    let peer = Peer::start(Some(&data()), Whims::default()).await;
    let (text, end, read_back) = pull(&peer, &[("x-number-of-streams", "4")]).await;
    assert_eq!(last_line(&text), "success: Created", "{text}");
    assert!(text.contains("Stripe Index: 3\n") && text.contains("Total Stripe Count: 4\n"));
    let checksums = published(end, &data());
    assert!(checksums.contains(&sums(&[ChecksumKind::Adler32], &data())[0]));
    assert_eq!((peer.count("GET"), peer.count("HEAD"), read_back), (4, 2, 0));
    // A checksum that cannot be combined is computed from what was written.
    let md5_only = Whims { kinds: vec![ChecksumKind::Md5], ..Whims::default() };
    let peer = Peer::start(Some(&data()), md5_only).await;
    let (text, end, read_back) = pull(&peer, &[("x-number-of-streams", "4")]).await;
    assert_eq!(last_line(&text), "success: Created", "{text}");
    published(end, &data());
    assert_eq!(read_back, data().len() as u64);
}

#[tokio::test]
async fn one_stream_is_used_where_several_cannot_be() {
    for whims in [
        Whims { accept_ranges: false, ..Whims::default() },
        Whims { ignores_ranges: true, ..Whims::default() },
        Whims { etag: false, ..Whims::default() },
        Whims { head_status: Some(405), ..Whims::default() },
    ] {
        let peer = Peer::start(Some(&data()), whims.clone()).await;
        let (text, end, _) = pull(&peer, &[("x-number-of-streams", "3")]).await;
        assert_eq!(last_line(&text), "success: Created", "{whims:?}");
        assert!(text.trim_end().rsplit("Perf Marker").next().unwrap().contains("Total Stripe Count: 1"));
        published(end, &data());
    }
}

#[tokio::test]
async fn a_killed_source_is_asked_for_the_rest() {
    for (streams, gets) in [("1", 3), ("3", 5)] {
        let peer = Peer::start(Some(&data()), Whims { cut: Some((2, 300_000)), ..Whims::default() }).await;
        let (text, end, _) = pull(&peer, &[("x-number-of-streams", streams)]).await;
        assert_eq!(last_line(&text), "success: Created", "{text}");
        published(end, &data());
        assert_eq!(peer.count("GET"), gets, "{streams} streams: {:?}", peer.asked());
        let asked = peer.asked();
        let resumed = asked.iter().find(|head| head.contains("range: bytes=300000-"));
        assert!(resumed.is_some_and(|head| head.contains("if-range: \"")), "{asked:?}");
    }
    // Without a validator the parts could be of two files: from the beginning then.
    let whims = Whims { cut: Some((1, 700_000)), etag: false, ..Whims::default() };
    let peer = Peer::start(Some(&data()), whims).await;
    let (text, end, _) = pull(&peer, &[]).await;
    assert_eq!(last_line(&text), "success: Created", "{text}");
    published(end, &data());
    assert!(peer.asked().iter().all(|head| !head.contains("range")));
}

#[tokio::test]
async fn a_source_that_stays_dead_leaves_nothing() {
    for streams in ["1", "3"] {
        let peer = Peer::start(Some(&data()), Whims { cut: Some((1000, 1000)), ..Whims::default() }).await;
        let (text, end, _) = pull(&peer, &[("x-number-of-streams", streams)]).await;
        assert!(last_line(&text).starts_with("failure: connection to 127.0.0.1"), "{text}");
        assert_eq!(end, End::LeftNothing);
        assert!(peer.count("GET") <= 12);
    }
}

#[tokio::test]
async fn a_wrong_checksum_is_a_failure_with_any_number_of_streams() {
    for streams in ["1", "3"] {
        let peer =
            Peer::start(Some(&data()), Whims { digest: Some("adler32=0badf00d"), ..Whims::default() }).await;
        for require in ["true", "false"] {
            let more = [("x-number-of-streams", streams), ("requirechecksumverification", require)];
            let (text, end, _) = pull(&peer, &more).await;
            if require == "false" {
                // Nothing is asked for then.
                assert_eq!(last_line(&text), "success: Created");
                continue;
            }
            assert!(last_line(&text).starts_with("failure: checksum does not agree: "), "{text}");
            assert!(text.contains("adler32:0badf00d"));
            assert_eq!(end, End::LeftNothing);
        }
    }
}

#[tokio::test]
async fn a_source_without_checksums_fails_only_where_one_is_required() {
    for streams in ["1", "3"] {
        let peer = Peer::start(Some(&data()), Whims { kinds: Vec::new(), ..Whims::default() }).await;
        let (text, end, _) = pull(&peer, &[("x-number-of-streams", streams)]).await;
        assert_eq!(last_line(&text), "success: Created");
        published(end, &data());
        let more = [("x-number-of-streams", streams), ("requirechecksumverification", "true")];
        let (text, end, _) = pull(&peer, &more).await;
        assert!(last_line(&text).starts_with("failure: checksum verification is required"), "{text}");
        assert_eq!(end, End::LeftNothing);
    }
    let whims = Whims { digest: Some("adler32=zzz"), ..Whims::default() };
    let peer = Peer::start(Some(&data()), whims).await;
    let (text, _, _) = pull(&peer, &[("requirechecksumverification", "true")]).await;
    assert!(last_line(&text).starts_with("failure: checksum verification is required"), "{text}");
}

#[tokio::test]
async fn an_end_that_may_be_a_broken_connection_needs_a_length_or_a_checksum() {
    let silent = Whims { undelimited: true, kinds: Vec::new(), ..Whims::default() };
    let peer = Peer::start(Some(&data()), silent.clone()).await;
    let (text, end, _) = pull(&peer, &[]).await;
    assert!(
        last_line(&text).starts_with("failure: other server tells neither length nor checksum"),
        "{text}"
    );
    assert_eq!(end, End::LeftNothing);
    // The HEAD behind it tells the length, and what came is less.
    let peer = Peer::start(Some(&data()), Whims { cut: Some((9, 1000)), ..silent }).await;
    let (text, end, _) = pull(&peer, &[]).await;
    assert!(last_line(&text).starts_with("failure: size does not agree"), "{text}");
    assert_eq!(end, End::LeftNothing);
    let peer = Peer::start(Some(&data()), Whims { undelimited: true, ..Whims::default() }).await;
    let (text, end, _) = pull(&peer, &[]).await;
    assert_eq!(last_line(&text), "success: Created");
    published(end, &data());
}

#[tokio::test]
async fn a_pull_refuses_two_framings_and_codings_it_cannot_see_the_end_of() {
    let both = Whims { framing: Some("Transfer-Encoding: chunked"), ..Whims::default() };
    // Taken for the end of the file before, where neither HEAD nor a checksum tell more.
    let cut = Whims {
        framing: Some("Transfer-Encoding: gzip"),
        undelimited: true,
        is_head_mute: true,
        kinds: Vec::new(),
        cut: Some((9, 1000)),
        ..Whims::default()
    };
    for whims in [both, cut] {
        let peer = Peer::start(Some(&data()), whims).await;
        let (text, end, _) = pull(&peer, &[]).await;
        assert!(last_line(&text).starts_with("failure: 127.0.0.1"), "{text}");
        assert!(last_line(&text).contains("does not speak proper HTTP: "), "{text}");
        assert_eq!((end, peer.count("GET")), (End::LeftNothing, 1));
    }
}

#[tokio::test]
async fn a_source_that_changes_in_the_middle_is_never_mixed() {
    let mut newer = data();
    newer.reverse();
    // One stream starts again, with If-Range.
    let whims = Whims { cut: Some((1, 700_000)), becomes: Some(newer.clone()), ..Whims::default() };
    let peer = Peer::start(Some(&data()), whims.clone()).await;
    let (text, end, _) = pull(&peer, &[]).await;
    assert_eq!(last_line(&text), "success: Created", "{text}");
    published(end, &newer);
    // Several cannot; nor can one, if the other server does not look at If-Range.
    let careless = Whims { ignores_if_range: true, ..whims.clone() };
    for (whims, streams) in [(whims, "3"), (careless.clone(), "1"), (careless, "3")] {
        let peer = Peer::start(Some(&data()), whims).await;
        let (text, end, _) = pull(&peer, &[("x-number-of-streams", streams)]).await;
        assert_eq!(last_line(&text), "failure: remote file changed during the copy");
        assert_eq!(end, End::LeftNothing);
    }
}

#[tokio::test]
async fn a_refusal_is_told_once_and_on_one_line() {
    let peer = Peer::start(Some(&data()), Whims { token: Some("t"), ..Whims::default() }).await;
    let (text, end, _) = pull(&peer, &[("transferheaderauthorization", "Bearer expired")]).await;
    assert_eq!(last_line(&text), "failure: rejected GET: 401 Unauthorized: said so");
    assert_eq!((end, peer.asked().len()), (End::LeftNothing, 1));
    let peer = Peer::start(None, Whims::default()).await;
    let (text, _, _) = pull(&peer, &[]).await;
    assert_eq!(last_line(&text), "failure: rejected GET: 404 Not Found: said so");
}

#[tokio::test]
async fn a_token_is_not_carried_to_where_a_redirect_leads() {
    let there = Peer::start(Some(&data()), Whims::default()).await;
    let peer = Peer::start(None, Whims { redirect: Some(there.url.clone()), ..Whims::default() }).await;
    let more = [("transferheaderauthorization", "Bearer t"), ("transferheaderx-key", "k")];
    let (text, end, _) = pull(&peer, &more).await;
    assert_eq!(last_line(&text), "success: Created");
    published(end, &data());
    assert!(peer.asked()[0].contains("authorization: bearer t") && peer.asked()[0].contains("x-key: k"));
    assert!(there.asked().iter().all(|head| !head.contains("authorization") && !head.contains("x-key")));
}

#[tokio::test]
async fn a_source_that_never_answers_or_stops_ends_in_bounded_time() {
    let config = ThirdPartyConfig {
        retries_max: 0,
        checksum_timeout: Duration::from_millis(200),
        speed_window: Duration::from_secs(60),
        ..config()
    };
    let peer = Peer::start(None, Whims { silent: true, ..Whims::default() }).await;
    let (text, end, _) = pull_with(config.clone(), &peer, &[]).await;
    assert!(last_line(&text).contains("does not answer within 0.2 s"), "{text}");
    assert_eq!(end, End::LeftNothing);
    // It keeps the connection and sends too little in the window.
    let config = ThirdPartyConfig {
        checksum_timeout: Duration::from_secs(60),
        speed_window: Duration::from_secs(1),
        speed_min_bytes_s: 1 << 20,
        ..config
    };
    let peer = Peer::start(Some(&data()), Whims { stalls_after: Some(10), ..Whims::default() }).await;
    let (text, end, _) = pull_with(config, &peer, &[]).await;
    assert!(last_line(&text).starts_with("failure: transfer is too slow: "), "{text}");
    assert!(text.matches("Perf Marker").count() > 2, "markers went on meanwhile");
    assert_eq!(end, End::LeftNothing);
}

#[tokio::test]
async fn a_client_that_goes_away_cancels_and_leaves_nothing() {
    let transfers = transfers(config());
    let mut peer = Peer::start(Some(&data()), Whims { stalls_after: Some(10), ..Whims::default() }).await;
    let (target, mut watch) = target();
    let response = transfers.admit().ok().unwrap().pull(request(&[("source", &peer.url)]), target);
    peer.until_asked("STALLED").await;
    assert_eq!(transfers.count(), 1);
    drop(response);
    assert_eq!(watch.end().await, End::LeftNothing);
}

#[tokio::test]
async fn a_full_disk_is_told() {
    let peer = Peer::start(Some(&data()), Whims::default()).await;
    let (target, mut watch) = target();
    let slot = transfers(config()).admit().ok().unwrap();
    let text = told(slot.pull(request(&[("source", &peer.url)]), target.with_space(1_000_000))).await;
    assert_eq!(last_line(&text), "failure: no space left");
    assert_eq!(watch.end().await, End::LeftNothing);
}
