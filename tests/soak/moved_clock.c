/* A clock that is moved: loaded before the C library (LD_PRELOAD) of a process that is to live through weeks in an hour.
 *
 * The file that MOVED_CLOCK names holds the number of moves, then each of them: the machine's time at which the clock
 * was moved, and what has been added to the machine's clock since, both in nanoseconds. The time of day is that of the
 * newest move. Times of files are shown as the clock stood when they were written, so that whoever compares a file's
 * age with the clock, in any language, finds what he would have found after weeks. Deadlines by the time of day are
 * given back to the kernel as the machine's. Monotonic clocks stay as they are.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL
#define YEAR (366LL * 86400 * SECOND)
#define MOST 4000000

struct move { int64_t since, added; };
struct moves { int64_t count; struct move each[MOST]; };
static struct moves *moves;

__attribute__((constructor)) static void open_moves(void) {
    const char *path = getenv("MOVED_CLOCK");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof(struct moves), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED) moves = mapped;
}

static int64_t nanoseconds(const struct timespec *time) { return time->tv_sec * SECOND + time->tv_nsec; }

static void set(struct timespec *time, int64_t ns) {
    time->tv_sec = ns / SECOND;
    time->tv_nsec = ns % SECOND;
}

static int64_t machine_ns(void) {
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_REALTIME, &now);
    return nanoseconds(&now);
}

static int64_t added(void) {
    int64_t count = moves ? __atomic_load_n(&moves->count, __ATOMIC_ACQUIRE) : 0;
    return count ? moves->each[count - 1].added : 0;
}

/* Files from before the first move keep their times. */
static int64_t shown(int64_t machine) {
    int64_t low = 0, high = moves ? __atomic_load_n(&moves->count, __ATOMIC_ACQUIRE) : 0;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (moves->each[middle].since <= machine) low = middle + 1; else high = middle;
    }
    return low ? machine + moves->each[low - 1].added : machine;
}

/* Move the clock forward to a time, in nanoseconds since 1970, and return the time of day; never back. */
int64_t moved_clock_to(int64_t wanted) {
    int64_t now = machine_ns(), more = wanted - now;
    if (moves && more > added() && moves->count < MOST) {
        moves->each[moves->count] = (struct move){now, more};
        __atomic_store_n(&moves->count, moves->count + 1, __ATOMIC_RELEASE);
    }
    return now + added();
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, time);
    if (!result && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) set(time, nanoseconds(time) + added());
    return result;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    struct timespec now;
    set(&now, machine_ns() + added());
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *seconds) {
    time_t now = (machine_ns() + added()) / SECOND;
    if (seconds) *seconds = now;
    return now;
}

static int of_files(int result, struct stat *file) {
    if (!result) {
        set(&file->st_mtim, shown(nanoseconds(&file->st_mtim)));
        set(&file->st_ctim, shown(nanoseconds(&file->st_ctim)));
    }
    return result;
}

#define STAT(name, parameters, arguments)                                  \
    int name parameters {                                                  \
        static int (*real) parameters;                                     \
        if (!real) real = dlsym(RTLD_NEXT, #name);                         \
        return of_files(real arguments, (struct stat *)file);              \
    }
STAT(stat, (const char *restrict path, struct stat *restrict file), (path, file))
STAT(lstat, (const char *restrict path, struct stat *restrict file), (path, file))
STAT(fstat, (int number, struct stat *file), (number, file))
STAT(fstatat, (int folder, const char *restrict path, struct stat *restrict file, int flags), (folder, path, file, flags))
STAT(stat64, (const char *restrict path, struct stat64 *restrict file), (path, file))
STAT(lstat64, (const char *restrict path, struct stat64 *restrict file), (path, file))
STAT(fstat64, (int number, struct stat64 *file), (number, file))
STAT(fstatat64, (int folder, const char *restrict path, struct stat64 *restrict file, int flags), (folder, path, file, flags))
STAT(__xstat, (int version, const char *path, struct stat *file), (version, path, file))
STAT(__lxstat, (int version, const char *path, struct stat *file), (version, path, file))
STAT(__fxstat, (int version, int number, struct stat *file), (version, number, file))
STAT(__fxstatat, (int version, int folder, const char *path, struct stat *file, int flags), (version, folder, path, file, flags))
STAT(__xstat64, (int version, const char *path, struct stat64 *file), (version, path, file))
STAT(__lxstat64, (int version, const char *path, struct stat64 *file), (version, path, file))
STAT(__fxstat64, (int version, int number, struct stat64 *file), (version, number, file))
STAT(__fxstatat64, (int version, int folder, const char *path, struct stat64 *file, int flags), (version, folder, path, file, flags))

int statx(int folder, const char *restrict path, int flags, unsigned mask, struct statx *restrict file) {
    int result = syscall(SYS_statx, folder, path, flags, mask, file);
    if (!result) {
        struct timespec time = {file->stx_mtime.tv_sec, file->stx_mtime.tv_nsec};
        set(&time, shown(nanoseconds(&time)));
        file->stx_mtime.tv_sec = time.tv_sec;
        file->stx_mtime.tv_nsec = time.tv_nsec;
    }
    return result;
}

/* A deadline by another clock, of seconds since the boot, is far from the time of day. */
static const struct timespec *deadline(const struct timespec *until, struct timespec *machine) {
    int64_t ns = nanoseconds(until), far = ns - machine_ns() - added();
    if (far > YEAR || far < -YEAR) return until;
    set(machine, ns - added());
    return machine;
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict until) {
    static int (*real)(sem_t *, const struct timespec *);
    struct timespec machine;
    if (!real) real = dlsym(RTLD_NEXT, "sem_timedwait");
    return real(semaphore, deadline(until, &machine));
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until) {
    static int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    struct timespec machine;
    if (!real) real = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2"); /* there is an older one */
    return real(condition, mutex, deadline(until, &machine));
}
