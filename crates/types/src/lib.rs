//! The words every crate uses: ids, names, attributes, ranges, time.
