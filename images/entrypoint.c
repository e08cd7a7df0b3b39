/*
 * Puts a guard in front of the program of a container: for an image's ENTRYPOINT, which no manifest can wrap.
 *
 * glibc's loader calls la_version before the container's first program begins (LD_AUDIT, rtld-audit(7)). Process 1 then
 * executes the words of ENTRYPOINT_GUARD, "--", and what it was started with; the guard sees neither variable. Where
 * anything is missing nothing happens, and the program runs by itself: a static program and one of musl never come
 * here. The agent counts the guards that come (GUARDS_AWAITED, docs/adr/0093).
 *
 * Other processes with the variable (kubectl exec, a probe) are not process 1. There is no C library here: which one the
 * program uses is not known, and it is not ready yet.
 */
#include <stddef.h>

#define VARIABLE "ENTRYPOINT_GUARD="
#define LOADER "LD_AUDIT="
#define TEXT_BYTES_MAX ((size_t)8 << 20) /* Linux takes at most 6 MiB of arguments and variables */

#if defined(__x86_64__)
enum { READ = 0, CLOSE = 3, MMAP = 9, GETPID = 39, EXECVE = 59, OPENAT = 257 };

static long syscall6(long number, long a, long b, long c, long d, long e, long f) {
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall" : "+a"(number) : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
    return number;
}
#elif defined(__aarch64__)
enum { READ = 63, CLOSE = 57, MMAP = 222, GETPID = 172, EXECVE = 221, OPENAT = 56 };

static long syscall6(long number, long a, long b, long c, long d, long e, long f) {
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
}
#else
#error "expected x86-64 or AArch64"
#endif

enum { AT_FDCWD = -100, O_RDONLY = 0, O_CLOEXEC = 02000000, PROT_READ_WRITE = 3, MAP_PRIVATE_ANONYMOUS = 0x22 };

/* Texts as the kernel keeps them, each with its 0. */
struct texts {
    char *first;
    char *end;
    size_t count;
};

static void *memory(size_t size) {
    long at = syscall6(MMAP, 0, (long)size, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS, -1, 0);
    return at < 0 && at > -4096 ? NULL : (void *)at;
}

static int read_texts(const char *path, struct texts *texts) {
    char *buffer = memory(TEXT_BYTES_MAX);
    long file = buffer ? syscall6(OPENAT, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC, 0, 0, 0) : -1;
    size_t size = 0;
    long got = -1;
    if (file < 0) return 0;
    while (size < TEXT_BYTES_MAX) {
        got = syscall6(READ, file, (long)(buffer + size), (long)(TEXT_BYTES_MAX - size), 0, 0, 0);
        if (got <= 0) break;
        size += (size_t)got;
    }
    syscall6(CLOSE, file, 0, 0, 0, 0, 0);
    if (got || !size || buffer[size - 1]) return 0; /* it failed, or does not fit, or is none of the kernel's */
    texts->first = buffer;
    texts->end = buffer + size;
    texts->count = 0;
    for (char *one = buffer; one < texts->end; one++) texts->count += !*one;
    return 1;
}

static char *next(char *text) {
    while (*text++) {}
    return text;
}

/* Return what follows a prefix, or NULL. */
static char *after(char *text, const char *prefix) {
    for (; *prefix; prefix++) {
        if (*text++ != *prefix) return NULL;
    }
    return text;
}

__attribute__((visibility("default"))) unsigned int la_version(unsigned int version) {
    struct texts arguments, variables;
    char *guard = NULL;
    (void)version;
    if (syscall6(GETPID, 0, 0, 0, 0, 0, 0) != 1) return 0;
    if (!read_texts("/proc/self/cmdline", &arguments) || !read_texts("/proc/self/environ", &variables)) return 0;
    for (char *one = variables.first; one < variables.end && !guard; one = next(one)) guard = after(one, VARIABLE);
    if (!guard || !*guard) return 0;

    size_t words = 1;
    for (char *one = guard; *one; one++) words += *one == ' ';
    char **command = memory((words + 1 + arguments.count + 1 + variables.count + 1) * sizeof(char *));
    if (!command) return 0;
    char **word = command;
    *word++ = guard;
    for (char *one = guard; *one; one++) {
        if (*one == ' ') {
            *one = 0;
            *word++ = one + 1;
        }
    }
    *word++ = "--";
    for (char *one = arguments.first; one < arguments.end; one = next(one)) *word++ = one;
    *word++ = NULL;
    char **environment = word;
    for (char *one = variables.first; one < variables.end; one = next(one)) {
        if (!after(one, VARIABLE) && !after(one, LOADER)) *word++ = one;
    }
    syscall6(EXECVE, (long)command[0], (long)command, (long)environment, 0, 0, 0);
    return 0;
}
