//! Pushes to servers that take, refuse, lose or are killed; and what is deleted behind them.

use types::ChecksumKind;

use super::*;

#[tokio::test]
async fn a_push_is_compared_before_success_is_said() {
    let peer = Peer::start(None, Whims { token: Some("t"), ..Whims::default() }).await;
    let text = push(&peer, source(&data()), &[("transferheaderauthorization", "Bearer t")]).await;
    assert_eq!(last_line(&text), "success: Created", "{text}");
    assert!(text.contains(&format!("Stripe Bytes Transferred: {}\n", data().len())));
    assert!(text.contains("RemoteConnections: tcp:127.0.0.1:"));
    assert!(peer.file().unwrap() == data());
    let asked = peer.asked();
    assert!(asked[0].starts_with("head") && asked[1].starts_with("put") && asked[2].starts_with("head"));
    // The passive side may verify as well.
    assert!(asked[1].contains("\r\ndigest: adler32=") && asked[1].contains("expect: 100-continue"));
    assert!(asked[2].contains("want-digest: adler32;q=1"));
    assert_eq!(asked.len(), 3);
}

#[tokio::test]
async fn an_empty_file_is_pushed() {
    let peer = Peer::start(None, Whims::default()).await;
    let text = push(&peer, source(b""), &[("copy-flags", "NoHead")]).await;
    assert_eq!(last_line(&text), "success: Created", "{text}");
    assert_eq!(peer.file().unwrap(), b"");
    assert!(peer.asked()[0].starts_with("put"));
}

#[tokio::test]
async fn a_wrong_checksum_there_is_a_failure_and_the_file_is_deleted() {
    let peer = Peer::start(None, Whims { digest: Some("adler32=0badf00d"), ..Whims::default() }).await;
    let text = push(&peer, source(&data()), &[]).await;
    assert!(last_line(&text).starts_with("failure: checksum does not agree: "), "{text}");
    assert_eq!((peer.file(), peer.count("DELETE")), (None, 1));
}

#[tokio::test]
async fn a_push_is_a_failure_where_neither_size_nor_checksum_can_be_compared() {
    let blind = Whims { head_status: Some(403), ..Whims::default() };
    let peer = Peer::start(None, blind.clone()).await;
    let text = push(&peer, source(&data()), &[]).await;
    assert!(last_line(&text).starts_with("failure: cannot verify the copy: "), "{text}");
    assert_eq!((peer.file(), peer.count("DELETE")), (None, 1));
    let peer = Peer::start(None, blind).await;
    let text = push(&peer, source(&data()), &[("requirechecksumverification", "true")]).await;
    assert!(last_line(&text).starts_with("failure: checksum verification is required"), "{text}");
    assert_eq!(peer.file(), None);
    let mute = Whims { kinds: Vec::new(), is_head_mute: true, ..Whims::default() };
    let text = push(&Peer::start(None, mute).await, source(&data()), &[]).await;
    assert!(last_line(&text).starts_with("failure: cannot verify the copy: "), "{text}");
}

#[tokio::test]
async fn a_size_is_enough_unless_a_checksum_is_required() {
    let sized = Whims { kinds: Vec::new(), ..Whims::default() };
    let peer = Peer::start(None, sized).await;
    assert_eq!(last_line(&push(&peer, source(&data()), &[]).await), "success: Created");
    let text = push(&peer, source(&data()), &[("requirechecksumverification", "true")]).await;
    assert!(last_line(&text).starts_with("failure: checksum verification is required"), "{text}");
    // A server that knows only md5 is enough then.
    let peer = Peer::start(None, Whims { kinds: vec![ChecksumKind::Md5], ..Whims::default() }).await;
    let text = push(&peer, source(&data()), &[("requirechecksumverification", "true")]).await;
    assert_eq!(last_line(&text), "success: Created");
}

#[tokio::test]
async fn a_server_that_answers_a_put_before_it_reads_the_body_has_nothing() {
    for status in [200, 201, 204] {
        for (head_status, is_head_mute) in [(None, true), (Some(403), false)] {
            let page = Whims { put_unread: Some(status), head_status, is_head_mute, ..Whims::default() };
            let peer = Peer::start(Some(b"a login page"), page).await;
            let text = push(&peer, source(&data()), &[]).await;
            assert!(last_line(&text).starts_with("failure: 127.0.0.1"), "{text}");
            assert!(last_line(&text).ends_with("before it has read the body"), "{text}");
            assert_eq!((peer.file().unwrap(), peer.count("DELETE")), (b"a login page".to_vec(), 0));
        }
    }
}

#[tokio::test]
async fn an_existing_file_is_left_alone_unless_it_may_be_overwritten() {
    let peer = Peer::start(Some(b"old"), Whims::default()).await;
    let text = push(&peer, source(&data()), &[("overwrite", "F")]).await;
    assert_eq!(last_line(&text), "failure: destination exists and Overwrite is F");
    assert_eq!((peer.file().unwrap(), peer.asked().len()), (b"old".to_vec(), 1));
    let text = push(&peer, source(&data()), &[]).await;
    assert_eq!(last_line(&text), "success: Created");
    assert!(peer.file().unwrap() == data());
    let peer = Peer::start(None, Whims::default()).await;
    let text = push(&peer, source(&data()), &[("overwrite", "F")]).await;
    assert_eq!(last_line(&text), "success: Created");
    assert!(peer.asked()[1].contains("if-none-match: *"));
}

#[tokio::test]
async fn a_refused_put_deletes_nothing() {
    let peer = Peer::start(Some(b"old"), Whims { put_status: Some(403), ..Whims::default() }).await;
    let text = push(&peer, source(&data()), &[]).await;
    assert_eq!(last_line(&text), "failure: rejected PUT: 403 Forbidden: said so");
    assert_eq!((peer.file().unwrap(), peer.count("DELETE"), peer.count("PUT")), (b"old".to_vec(), 0, 1));
}

#[tokio::test]
async fn a_killed_destination_is_tried_again_and_then_cleaned_up() {
    let killed = Whims { put_cut: Some(1_000_000), ..Whims::default() };
    let peer = Peer::start(None, killed.clone()).await;
    let text = push(&peer, source(&data()), &[]).await;
    assert!(last_line(&text).starts_with("failure: connection to 127.0.0.1"), "{text}");
    assert_eq!((peer.count("PUT"), peer.count("DELETE")), (4, 1));
    // A file that was there before, and still is, is not ours to delete.
    let peer = Peer::start(Some(b"old"), killed).await;
    let text = push(&peer, source(&data()), &[]).await;
    assert!(last_line(&text).starts_with("failure: connection to 127.0.0.1"), "{text}");
    assert_eq!((peer.file().unwrap(), peer.count("DELETE")), (b"old".to_vec(), 0));
}

#[tokio::test]
async fn a_client_that_goes_away_has_half_a_file_deleted() {
    let transfers = transfers(ThirdPartyConfig { retry_pause: Duration::from_secs(3600), ..config() });
    let mut peer = Peer::start(None, Whims { put_cut: Some(1_000_000), ..Whims::default() }).await;
    let destination = request(&[("destination", &peer.url)]);
    let response = transfers.admit().ok().unwrap().push(destination, Arc::new(source(&data())));
    peer.until_asked("CUT").await;
    drop(response);
    peer.until_asked("DELETE").await;
}

#[tokio::test]
async fn a_source_that_is_damaged_or_changes_is_not_passed_on() {
    let peer = Peer::start(None, Whims::default()).await;
    let mut damaged = source(&data());
    damaged.bytes[5] ^= 1;
    let text = push(&peer, damaged, &[]).await;
    assert!(last_line(&text).starts_with("failure: file is damaged: "), "{text}");
    assert_eq!(peer.file(), None);
    let text = push(&peer, memory::Source { is_changed: true, ..source(&data()) }, &[]).await;
    assert_eq!(last_line(&text), "failure: file changed during the copy");
    assert_eq!(peer.file(), None);
}
