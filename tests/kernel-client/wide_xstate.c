/* Preloaded into user-mode Linux on CPUs with AMX.
 *
 * User-mode Linux before 6.13 keeps 2,696 bytes of a process's extended registers and sets as many with
 * PTRACE_SETREGSET(NT_X86_XSTATE). The host takes its whole area or nothing (EFAULT: "ptrace set fp regs failed"), and AMX's
 * tiles make that one 11 KB. So what is behind the guest's part is filled in from the process itself. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/uio.h>

long ptrace(enum __ptrace_request request, ...)
{
	static long (*host)(enum __ptrace_request, pid_t, void *, void *);
	static char all[1 << 16] __attribute__((aligned(64)));
	__builtin_va_list arguments;
	__builtin_va_start(arguments, request);
	pid_t pid = __builtin_va_arg(arguments, pid_t);
	void *addr = __builtin_va_arg(arguments, void *);
	void *data = __builtin_va_arg(arguments, void *);
	__builtin_va_end(arguments);
	if (!host)
		host = (long (*)(enum __ptrace_request, pid_t, void *, void *))dlsym(RTLD_NEXT, "ptrace");
	if (request != PTRACE_SETREGSET || (long)addr != NT_X86_XSTATE)
		return host(request, pid, addr, data);
	struct iovec *given = data, whole = { all, sizeof(all) };
	if (host(PTRACE_GETREGSET, pid, addr, &whole) < 0)
		return -1;
	memcpy(all, given->iov_base, given->iov_len < whole.iov_len ? given->iov_len : whole.iov_len);
	return host(PTRACE_SETREGSET, pid, addr, &whole);
}
