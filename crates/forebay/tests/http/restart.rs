//! A crash of the server: what was answered is there, what was not is not.

use crate::server::{Server, until};

#[test]
fn a_put_in_the_middle_of_a_crash_leaves_nothing_and_what_was_published_stays_with_its_checksums() {
    let (instance, server) = Server::start();
    let contents = vec![5; 300_000];
    assert_eq!(server.put("/file", &contents).status, 201);
    let digest = |server: &Server| {
        server.send(&server.ask("HEAD", "/file").with("Want-Digest", "adler32")).told("digest")
    };
    let before = digest(&server);
    let writers: Vec<_> = ["/file", "/new"]
        .map(|target| {
            let mut writer = server.connect();
            writer.begin(&server.ask("PUT", target).with("Content-Length", 8_000_000));
            writer.write(&[9; 4_000_000]);
            writer
        })
        .into();
    let mut parts = server.connect();
    let part = server.ask("PUT", "/parts").with("Content-Range", "bytes 0-9/20").body([1; 10]);
    assert_eq!(parts.ask(&part).status, 202);
    until("bytes are in the pool", || instance.bytes_in_pool() > 5_000_000);
    server.kill();
    drop(writers);
    let server = instance.up();
    assert!(server.read("/file") == contents);
    assert_eq!(digest(&server), before);
    for name in ["/new", "/parts"] {
        assert_eq!(server.status_of("GET", name), 404, "{name}");
    }
    until("the orphans are gone", || instance.bytes_in_pool() < 400_000);
}

#[test]
fn every_put_that_was_answered_before_a_crash_is_there() {
    let (instance, server) = Server::start();
    let web = server.web();
    let asks: Vec<_> =
        (0..2_000).map(|number| server.ask("PUT", &format!("/{number}")).body(number.to_string())).collect();
    let answered = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut connection = crate::wire::Connection::open(web);
            for ask in &asks {
                match connection.ask_or_end(ask) {
                    Some(answer) => assert_eq!(answer.status, 201),
                    None => return,
                }
                answered.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            }
        });
        until("some are answered", || answered.load(std::sync::atomic::Ordering::SeqCst) >= 50);
        server.kill();
    });
    let server = instance.up();
    for number in 0..answered.into_inner() {
        assert_eq!(server.read(&format!("/{number}")), number.to_string().as_bytes());
    }
}
