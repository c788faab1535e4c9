/* reopen PASSES drop|keep|held FILE... -- reads the first 128 KiB of every file, PASSES times over, one after the other.
 *
 * drop   open, give up the file's pages, read, close: what `fio --loops` does, and what a program that maps one frame of
 *        a large data set after the other amounts to          keep   the same without giving the pages up
 * held   every file is opened once for all passes: the reads alone, which is the least that `drop` can take
 * Prints the seconds that the passes took, so that starting the program does not count. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FRAME_BYTES (128 << 10)

static char frame[FRAME_BYTES];

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static int read_frame(int fd, int drop)
{
	if (drop && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED))
		return -1;
	return pread(fd, frame, FRAME_BYTES, 0) == FRAME_BYTES ? 0 : -1;
}

static int reopen_frame(const char *path, int drop)
{
	int fd = open(path, O_RDONLY);
	int failed;

	if (fd < 0)
		return -1;
	failed = read_frame(fd, drop);
	return close(fd) || failed ? -1 : 0;
}

int main(int argc, char **argv)
{
	int files = argc - 3, held, drop;
	long passes;
	double start_s;
	int *fds;

	if (argc < 4 || (strcmp(argv[2], "drop") && strcmp(argv[2], "keep") && strcmp(argv[2], "held")))
		return fprintf(stderr, "usage: reopen PASSES drop|keep|held FILE...\n"), 2;
	passes = atol(argv[1]);
	held = !strcmp(argv[2], "held");
	drop = strcmp(argv[2], "keep");
	fds = calloc(files, sizeof *fds);
	for (int i = 0; held && i < files; i++)
		if ((fds[i] = open(argv[3 + i], O_RDONLY)) < 0)
			return perror(argv[3 + i]), 1;
	start_s = now_s();
	for (long pass = 0; pass < passes; pass++)
		for (int i = 0; i < files; i++)
			if (held ? read_frame(fds[i], drop) : reopen_frame(argv[3 + i], drop))
				return perror(argv[3 + i]), 1;
	printf("%.6f\n", now_s() - start_s);
	return 0;
}
