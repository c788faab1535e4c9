//! Bounds on the resources and the time that clients may take.

use std::time::Duration;

use http_wire::head::HeadLimits;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Per listener, and of one address no more than are free; a connection beyond it is told 503, as far as that can be done
    /// without TLS, and closed.
    pub connections_max: usize,
    /// Of them by HTTP/2, and of one address no more than are free; a client beyond it is offered HTTP/1.1 alone. One may
    /// take about 300 KiB beyond what is charged for: [`Limits::streams_max`] streams, and 64 KiB of bodies in small frames.
    pub h2_connections_max: usize,
    /// Under way in one HTTP/2 connection.
    pub streams_max: u32,
    /// HTTP/1.1 heads; the header list of HTTP/2 has the same size.
    pub head: HeadLimits,
    /// From its first byte a head must be complete within this.
    pub head_time: Duration,
    /// Between requests.
    pub idle_time: Duration,
    /// A body must get on within this. So slow a client is told 408 by most handlers.
    pub body_time: Duration,
    /// The client must take some of the response within this.
    pub write_time: Duration,
    pub handshake_time: Duration,
    /// A client that has closed its half of the connection is given up when its answer is not there by then.
    pub half_closed_time: Duration,
    /// After a last response, for the client to read it before the connection is torn down.
    pub linger_time: Duration,
    /// Requests under way at a stop may take so long to finish.
    pub stop_time: Duration,
    /// A body that the handler did not want is read to its end if no more than this is left, else the connection
    /// closes.
    pub drained_bytes_max: u64,
    /// Threads that send files whose pages are not in memory.
    pub file_senders_max: usize,
    /// Pipes that files go through, of 1 MiB and two descriptors each; a response beyond them goes by `sendfile(2)`.
    pub pipes_max: usize,
    /// Free buffers for request bodies that are kept for the next.
    pub buffers_bytes_max: usize,
    /// Of what is kept for clients in memory, of all connections together, and of one of them: responses on their way;
    /// besides, half as much for requests, half as much for what HTTP/2 receives before it is read, half as much for answers
    /// that are made in memory, and a quarter as much for streams. No address and no identity has more of any of these than is free.
    pub memory_bytes_max: usize,
    pub connection_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections_max: 4096,
            h2_connections_max: 512,
            streams_max: 100,
            head: HeadLimits::default(),
            head_time: Duration::from_secs(20),
            idle_time: Duration::from_secs(75),
            body_time: Duration::from_secs(60),
            write_time: Duration::from_secs(60),
            handshake_time: Duration::from_secs(10),
            half_closed_time: Duration::from_millis(500),
            linger_time: Duration::from_secs(10),
            stop_time: Duration::from_secs(10),
            drained_bytes_max: 64 << 10,
            file_senders_max: 16,
            pipes_max: 32,
            buffers_bytes_max: 32 << 20,
            memory_bytes_max: 64 << 20,
            connection_bytes_max: 4 << 20,
        }
    }
}
