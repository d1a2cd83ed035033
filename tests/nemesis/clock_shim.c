/* Adds an offset to the wall clock of a process: load it with LD_PRELOAD. CLOCK_SHIM_FILE names a file of 8 bytes, the
 * offset in nanoseconds; it is mapped, so writing to it steps the clock of every process at once, as settimeofday(2) does.
 * CLOCK_MONOTONIC and CLOCK_BOOTTIME are left alone: a real step of the wall clock does not move them either. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND INT64_C(1000000000)

static const volatile int64_t *offset_ns;
static int (*real_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void map_offset(void) {
  const char *path = getenv("CLOCK_SHIM_FILE");
  int descriptor = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (descriptor < 0) return;
  void *mapped = mmap(NULL, sizeof *offset_ns, PROT_READ, MAP_SHARED, descriptor, 0);
  if (mapped != MAP_FAILED) offset_ns = mapped;
  close(descriptor);
}

int clock_gettime(clockid_t clock, struct timespec *out) {
  if (!real_clock_gettime) real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
  int result = real_clock_gettime(clock, out);
  if (result == 0 && offset_ns && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    int64_t now = out->tv_sec * SECOND + out->tv_nsec + *offset_ns;
    out->tv_sec = now / SECOND;
    out->tv_nsec = now % SECOND;
  }
  return result;
}

int gettimeofday(struct timeval *out, void *zone) {
  (void)zone;
  struct timespec now;
  int result = clock_gettime(CLOCK_REALTIME, &now);
  out->tv_sec = now.tv_sec;
  out->tv_usec = now.tv_nsec / 1000;
  return result;
}

time_t time(time_t *out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}
