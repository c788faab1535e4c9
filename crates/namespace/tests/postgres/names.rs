//! `Sync::Names`: the database is asked to wait for its disk where names are concerned.

use std::time::Duration;

use api::{SetAttributes, Xattrs};
use types::XattrName;

use super::*;

const NAMES: Sync = Sync::Names(Duration::from_secs(60));
/// A change may share its group with work that waits.
const TRIES: usize = 20;

async fn set_mode(namespace: &SqlNamespace, file: FileId, mode: u32) {
    let set = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
    namespace.set_attributes(&root(), file, &set).await.unwrap();
}

/// The values of `synchronous_commit` in the groups since the last question.
fn waits(cluster: &Cluster, url: &str) -> Vec<String> {
    let seen = cluster.query(url, "DELETE FROM public.seen RETURNING waits").unwrap();
    seen.split_whitespace().filter(|word| ["on", "off"].contains(word)).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_waits_for_its_disk_in_groups_of_names_and_not_in_groups_of_attributes() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = cluster.create_database().unwrap();
    let namespace = open_as(server(&url), 1 << 20, NAMES).unwrap();
    let file = create(&namespace, "a").await.unwrap();
    let spy = "CREATE TABLE public.seen (waits text); CREATE FUNCTION public.spy() RETURNS trigger \
               LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.seen SELECT current_setting('synchronous_commit'); \
               RETURN NULL; END $$; CREATE TRIGGER spy AFTER UPDATE OF groups ON forebay.progress \
               FOR EACH ROW EXECUTE FUNCTION public.spy()";
    cluster.query(&url, spy).unwrap();
    let mut of_attributes = Vec::new();
    for _ in 0..TRIES {
        set_mode(&namespace, file, 0o777).await;
        of_attributes.extend(waits(cluster, &url));
    }
    assert!(of_attributes.contains(&"off".to_owned()), "{of_attributes:?}");

    let colour = XattrName::new(b"colour").unwrap();
    for number in 0..TRIES {
        create(&namespace, &format!("n{number}")).await.unwrap();
        let set = SetAttributes { size: Some(number as u64), ..SetAttributes::default() };
        namespace.set_attributes(&root(), file, &set).await.unwrap();
        namespace.set_xattr(&root(), file, &colour, &"red".into(), api::SetXattr::Either).await.unwrap();
    }
    let of_others = waits(cluster, &url);
    assert!(of_others.len() >= 3 * TRIES && !of_others.contains(&"off".to_owned()), "{of_others:?}");
}

/// The WAL writer sleeps for as long as the test lasts, so that nothing but a commit brings changes to the disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attributes_that_a_killed_server_lost_are_sent_again() {
    let settings = vec![("wal_writer_delay".to_owned(), "10s".to_owned())];
    let Some(mut cluster) = unless_missing(Cluster::start_with(&Options { settings, ..Options::default() }))
    else {
        return;
    };
    let url = cluster.create_database().unwrap();
    let namespace = open_as(server(&url), 1 << 20, NAMES).unwrap();
    let file = create(&namespace, "a").await.unwrap();
    set_mode(&namespace, file, 0o777).await;
    cluster.kill_9().unwrap();
    cluster.start_again().unwrap();
    create(&namespace, "b").await.unwrap();
    cluster.kill_9().unwrap();
    drop(namespace);
    cluster.start_again().unwrap();
    let again = open(&url);
    assert_eq!(names(&again).await, ["a", "b"]);
    assert_eq!(again.attributes(file).await.unwrap().mode, 0o777);
}
