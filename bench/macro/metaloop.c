/* metaloop OP N DIR -- N metadata operations one after the other, each waiting for the answer of the one before.
 *
 * create   open(O_CREAT|O_EXCL), close         stat     lstat of each name (its attributes)
 * remove   unlink                              getattr  statx(AT_STATX_FORCE_SYNC) of DIR: one small RPC, the floor
 * Prints the seconds that the loop took, so that starting the program does not count. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static int create(const char *path, int dir)
{
	int fd = open(path, O_CREAT | O_EXCL | O_WRONLY, 0644);

	(void)dir;
	return fd < 0 ? -1 : close(fd);
}

static int stat_one(const char *path, int dir)
{
	struct stat st;

	(void)dir;
	return lstat(path, &st);
}

static int remove_one(const char *path, int dir)
{
	(void)dir;
	return unlink(path);
}

static int getattr(const char *path, int dir)
{
	struct statx sx;

	(void)path;
	return statx(dir, "", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, &sx);
}

static const struct {
	const char *name;
	int (*run)(const char *path, int dir);
} OPS[] = { { "create", create }, { "stat", stat_one }, { "remove", remove_one }, { "getattr", getattr } };

int main(int argc, char **argv)
{
	char path[4096];
	size_t op = 0;
	double start_s;
	int dir;

	if (argc != 4)
		return fprintf(stderr, "usage: metaloop create|stat|remove|getattr N DIR\n"), 2;
	while (op < sizeof OPS / sizeof *OPS && strcmp(argv[1], OPS[op].name))
		op++;
	if (op == sizeof OPS / sizeof *OPS)
		return fprintf(stderr, "metaloop: no operation %s\n", argv[1]), 2;
	dir = open(argv[3], O_RDONLY | O_DIRECTORY);
	if (dir < 0)
		return perror(argv[3]), 1;
	start_s = now_s();
	for (long i = 0; i < atol(argv[2]); i++) {
		snprintf(path, sizeof path, "%s/m%06ld", argv[3], i);
		if (OPS[op].run(path, dir) < 0)
			return perror(path), 1;
	}
	printf("%.6f\n", now_s() - start_s);
	return 0;
}
