/* uring SIDE KIND BYTES IN_FLIGHT SECONDS FILE... -- one kind of request over and over, by threads or by io_uring.
 *
 * KIND: read-direct, read-hot, write-direct, write-sync (4 KiB of its own file each, then fdatasync).
 * SIDE: see bench/README.md. One thread submits, keeps IN_FLIGHT requests going and takes the results; every buffer is
 * made before the measured time and used again. Each block of the files begins with its number, which reads compare.
 * Prints one line of JSON. */
#define _GNU_SOURCE
#include <err.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define BLOCK_BYTES 4096
#define IN_FLIGHT_MAX 64
#define HUGE_PAGE_BYTES (2 << 20)
#define WARM_S 0.05
/* As in crates/pool: threads for syncs. */
#define SYNC_THREADS 16

enum kind { READ_DIRECT, READ_HOT, WRITE_DIRECT, WRITE_SYNC, KINDS };
static const char *const kind_names[KINDS] = { "read-direct", "read-hot", "write-direct", "write-sync" };

struct side {
	const char *name;
	enum { INLINE, THREADS, RING } by;
	int threads;		/* 0: as many as the engine has */
	int huge;		/* buffers in huge pages */
	int registered;		/* buffers and files */
	int eventfd;		/* results are told by epoll */
	unsigned ring_flags;
};

static const struct side sides[] = {
	{ .name = "inline", .by = INLINE },
	{ .name = "threads", .by = THREADS },
	{ .name = "threads-16", .by = THREADS, .threads = 16 },
	{ .name = "threads-huge", .by = THREADS, .huge = 1 },
	{ .name = "uring", .by = RING },
	{ .name = "uring-registered", .by = RING, .registered = 1 },
	{ .name = "uring-defer", .by = RING, .registered = 1,
	  .ring_flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN },
	{ .name = "uring-defer-huge", .by = RING, .registered = 1, .huge = 1,
	  .ring_flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN },
	{ .name = "uring-epoll", .by = RING, .registered = 1, .eventfd = 1 },
};

/* A request; its number is that of its buffer. */
struct slot {
	char *buffer;
	off_t offset;
	ssize_t result;
};

static const struct side *side;
static enum kind kind;
static size_t bytes;
static int in_flight, files;
static int fds[IN_FLIGHT_MAX];
static off_t file_bytes;
static struct slot slots[IN_FLIGHT_MAX];

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static int is_read(void)
{
	return kind == READ_DIRECT || kind == READ_HOT;
}

static int file_of(int number)
{
	return number % files;
}

static void choose_offset(struct slot *slot)
{
	static uint64_t x;

	/* The host of a virtual machine may have the blocks of an earlier run in its memory. */
	if (!x)
		x = now_s() * 1e9;
	x ^= x << 13, x ^= x >> 7, x ^= x << 17;
	slot->offset = x % (file_bytes / bytes) * bytes;
}

static void check(struct slot *slot)
{
	uint64_t block;

	if (slot->result != (ssize_t)bytes)
		errx(1, "%s: %s gave %zd: %s", side->name, kind_names[kind], slot->result,
		     slot->result < 0 ? strerror(-slot->result) : "short");
	memcpy(&block, slot->buffer, sizeof block);
	if (is_read() && block != (uint64_t)slot->offset / BLOCK_BYTES)
		errx(1, "%s: wrong bytes at %jd", side->name, (intmax_t)slot->offset);
}

/* In the thread that asks. */
static void perform(int number, int flags)
{
	struct slot *slot = &slots[number];
	struct iovec vector = { slot->buffer, bytes };
	int fd = fds[file_of(number)];

	if (is_read())
		slot->result = preadv2(fd, &vector, 1, slot->offset, flags);
	else
		slot->result = pwritev2(fd, &vector, 1, slot->offset, flags);
	if (slot->result >= 0 && kind == WRITE_SYNC && fdatasync(fd))
		slot->result = -1;
	if (slot->result < 0)
		slot->result = -errno;
}

static long run_inline(double until_s)
{
	long done = 0;

	for (; now_s() < until_s; done++) {
		struct slot *slot = &slots[done % in_flight];

		choose_offset(slot);
		perform(slot - slots, RWF_NOWAIT);
		check(slot);
	}
	return done;
}

/* A queue as in crates/io-engine/src/queue.rs: a lock, a condition, and a wake only if somebody sleeps. */
struct queue {
	pthread_mutex_t lock;
	pthread_cond_t work;
	int numbers[IN_FLIGHT_MAX];
	unsigned head, tail;
	int idle, woken;
};

#define QUEUE { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, { 0 }, 0, 0, 0, 0 }
static struct queue asked = QUEUE, answered = QUEUE;

static void push(struct queue *queue, int number)
{
	int wake;

	pthread_mutex_lock(&queue->lock);
	queue->numbers[queue->tail++ % IN_FLIGHT_MAX] = number;
	wake = queue->idle > queue->woken;
	queue->woken += wake;
	pthread_mutex_unlock(&queue->lock);
	if (wake)
		pthread_cond_signal(&queue->work);
}

static int pop(struct queue *queue)
{
	int number;

	pthread_mutex_lock(&queue->lock);
	while (queue->head == queue->tail) {
		queue->idle++;
		pthread_cond_wait(&queue->work, &queue->lock);
		queue->idle--;
		queue->woken -= queue->woken > 0;
	}
	number = queue->numbers[queue->head++ % IN_FLIGHT_MAX];
	pthread_mutex_unlock(&queue->lock);
	return number;
}

static void *serve(void *unused)
{
	for (;;) {
		int number = pop(&asked);

		perform(number, 0);
		push(&answered, number);
	}
	return unused;
}

static void start_threads(void)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	int threads = side->threads;
	pthread_t thread;

	if (!threads)
		threads = kind == WRITE_SYNC ? SYNC_THREADS : 2 * cores < 8 ? 2 * cores : 8;
	/* The engine starts one when a request finds none idle. */
	for (int i = 0; i < threads && i < in_flight; i++)
		if (pthread_create(&thread, NULL, serve, NULL))
			errx(1, "cannot start a thread");
}

static long run_threads(double until_s)
{
	long done = 0;
	int going = 0;

	for (; going < in_flight; going++) {
		choose_offset(&slots[going]);
		push(&asked, going);
	}
	while (going) {
		int number = pop(&answered);

		check(&slots[number]);
		done++;
		if (now_s() < until_s) {
			choose_offset(&slots[number]);
			push(&asked, number);
		} else {
			going--;
		}
	}
	return done;
}

static struct io_uring ring;
static int epoll;

static void start_ring(void)
{
	struct io_uring_params params = { .flags = side->ring_flags };
	struct iovec vectors[IN_FLIGHT_MAX];
	int error = io_uring_queue_init_params(2 * IN_FLIGHT_MAX, &ring, &params);

	if (error)
		errx(3, "io_uring_setup: %s", strerror(-error));
	for (int i = 0; i < in_flight; i++)
		vectors[i] = (struct iovec){ slots[i].buffer, bytes };
	if (side->registered && ((error = io_uring_register_buffers(&ring, vectors, in_flight)) ||
				 (error = io_uring_register_files(&ring, fds, files))))
		errx(3, "io_uring_register: %s", strerror(-error));
	if (side->eventfd) {
		struct epoll_event event = { .events = EPOLLIN | EPOLLET };
		int told = eventfd(0, EFD_NONBLOCK);

		epoll = epoll_create1(0);
		if (told < 0 || epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, told, &event) ||
		    io_uring_register_eventfd(&ring, told))
			errx(3, "cannot have the results of a ring told by epoll");
	}
}

static void prepare(int number)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
	struct slot *slot = &slots[number];
	int file = side->registered ? file_of(number) : fds[file_of(number)];

	if (is_read() && side->registered)
		io_uring_prep_read_fixed(sqe, file, slot->buffer, bytes, slot->offset, number);
	else if (is_read())
		io_uring_prep_read(sqe, file, slot->buffer, bytes, slot->offset);
	else if (side->registered)
		io_uring_prep_write_fixed(sqe, file, slot->buffer, bytes, slot->offset, number);
	else
		io_uring_prep_write(sqe, file, slot->buffer, bytes, slot->offset);
	sqe->flags |= side->registered ? IOSQE_FIXED_FILE : 0;
	sqe->user_data = number;
	if (kind == WRITE_SYNC) {
		sqe->flags |= IOSQE_IO_LINK;
		sqe->user_data = IN_FLIGHT_MAX + number;
		sqe = io_uring_get_sqe(&ring);
		io_uring_prep_fsync(sqe, file, IORING_FSYNC_DATASYNC);
		sqe->flags |= side->registered ? IOSQE_FIXED_FILE : 0;
		sqe->user_data = number;
	}
}

static void submit_and_wait(void)
{
	struct epoll_event event;
	int result;

	if (side->eventfd) {
		result = io_uring_submit(&ring);
		if (result >= 0 && !io_uring_cq_ready(&ring))
			/* Interrupted: the kernel had to finish requests in this thread. */
			result = epoll_wait(epoll, &event, 1, -1) < 0 ? -errno : 0;
	} else {
		result = io_uring_submit_and_wait(&ring, 1);
	}
	if (result < 0 && result != -EINTR)
		errx(1, "io_uring_enter: %s", strerror(-result));
}

/* The number of a request that has ended, or -1. */
static int reap(const struct io_uring_cqe *cqe)
{
	int number = cqe->user_data % IN_FLIGHT_MAX;

	if (kind == WRITE_SYNC && cqe->user_data < IN_FLIGHT_MAX) {
		if (cqe->res)
			errx(1, "%s: fdatasync: %s", side->name, strerror(-cqe->res));
		return number;
	}
	slots[number].result = cqe->res;
	check(&slots[number]);
	return kind == WRITE_SYNC ? -1 : number;
}

static long run_ring(double until_s)
{
	int going = 0, again;
	long done = 0;

	for (; going < in_flight; going++) {
		choose_offset(&slots[going]);
		prepare(going);
	}
	while (going) {
		struct io_uring_cqe *cqe;
		unsigned head, seen = 0;

		submit_and_wait();
		again = now_s() < until_s;
		io_uring_for_each_cqe(&ring, head, cqe) {
			int number = reap(cqe);

			seen++;
			if (number < 0)
				continue;
			done++;
			if (again) {
				choose_offset(&slots[number]);
				prepare(number);
			} else {
				going--;
			}
		}
		io_uring_cq_advance(&ring, seen);
	}
	return done;
}

static long run(double seconds)
{
	double until_s = now_s() + seconds;

	switch (side->by) {
	case INLINE:
		return run_inline(until_s);
	case THREADS:
		return run_threads(until_s);
	default:
		return run_ring(until_s);
	}
}

/* Without huge pages by default: so is the memory of the server. */
static void make_buffers(void)
{
	size_t length = bytes * in_flight + HUGE_PAGE_BYTES;
	char *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		err(1, "cannot map buffers");
	memory += HUGE_PAGE_BYTES - (uintptr_t)memory % HUGE_PAGE_BYTES;
	madvise(memory, bytes * in_flight, side->huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	memset(memory, 0x5a, bytes * in_flight);
	for (int i = 0; i < in_flight; i++)
		slots[i].buffer = memory + bytes * i;
}

static void open_files(int count, char **paths)
{
	int direct = kind == READ_DIRECT || kind == WRITE_DIRECT;
	struct stat status;

	files = count < in_flight ? count : in_flight;
	for (int i = 0; i < files; i++)
		if ((fds[i] = open(paths[i], (is_read() ? O_RDONLY : O_RDWR) | (direct ? O_DIRECT : 0))) < 0)
			err(1, "%s", paths[i]);
	if (fstat(fds[0], &status))
		err(1, "%s", paths[0]);
	file_bytes = status.st_size;
	if (kind != READ_HOT)
		return;
	for (off_t at = 0; at < file_bytes; at += bytes)
		if (pread(fds[0], slots[0].buffer, bytes, at) != (ssize_t)bytes)
			err(1, "%s", paths[0]);
}

struct usage {
	double at_s, user_us, system_us, machine_us;
	long switches;
};

static double microseconds(struct timeval t)
{
	return t.tv_sec * 1e6 + t.tv_usec;
}

/* The threads of a ring's workers belong to the process, so its times have theirs. */
static struct usage usage(void)
{
	unsigned long user = 0, nice = 0, system = 0, irq = 0, softirq = 0;
	FILE *stat = fopen("/proc/stat", "r");
	struct rusage own;

	if (!stat || fscanf(stat, "cpu %lu %lu %lu %*u %*u %lu %lu", &user, &nice, &system, &irq, &softirq) != 5)
		errx(1, "cannot read /proc/stat");
	fclose(stat);
	getrusage(RUSAGE_SELF, &own);
	return (struct usage){ now_s(), microseconds(own.ru_utime), microseconds(own.ru_stime),
			       (user + nice + system + irq + softirq) * 1e6 / sysconf(_SC_CLK_TCK), own.ru_nvcsw };
}

static int ring_workers(void)
{
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *task;
	int workers = 0;

	while (tasks && (task = readdir(tasks))) {
		char path[300], name[32] = "";
		FILE *comm;

		snprintf(path, sizeof path, "/proc/self/task/%s/comm", task->d_name);
		if (!(comm = fopen(path, "r")))
			continue;
		workers += fgets(name, sizeof name, comm) && !strncmp(name, "iou-wrk", 7);
		fclose(comm);
	}
	return workers;
}

static void report(long done, const struct usage *from, const struct usage *to)
{
	printf("{\"operations\": %ld, \"seconds\": %.6f, \"user_us\": %.3f, \"system_us\": %.3f, "
	       "\"machine_us\": %.3f, \"switches\": %.3f, \"ring_workers\": %d}\n",
	       done, to->at_s - from->at_s, (to->user_us - from->user_us) / done,
	       (to->system_us - from->system_us) / done, (to->machine_us - from->machine_us) / done,
	       (double)(to->switches - from->switches) / done, ring_workers());
}

int main(int argc, char **argv)
{
	struct usage from, to;
	long done;

	if (argc < 7)
		errx(2, "usage: uring SIDE KIND BYTES IN_FLIGHT SECONDS FILE...");
	for (size_t i = 0; i < sizeof sides / sizeof *sides; i++)
		if (!strcmp(argv[1], sides[i].name))
			side = &sides[i];
	while (kind < KINDS && strcmp(argv[2], kind_names[kind]))
		kind++;
	bytes = atol(argv[3]);
	in_flight = atoi(argv[4]);
	if (!side || kind == KINDS || bytes % BLOCK_BYTES || !bytes || in_flight < 1 || in_flight > IN_FLIGHT_MAX)
		errx(2, "no such side, kind, size or depth");
	make_buffers();
	open_files(argc - 6, argv + 6);
	if (side->by == THREADS)
		start_threads();
	if (side->by == RING)
		start_ring();
	run(WARM_S);
	from = usage();
	done = run(atof(argv[5]));
	to = usage();
	report(done, &from, &to);
	return 0;
}
