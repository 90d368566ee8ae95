// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <cstdarg>
#include <cstddef>

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

// Loaded before the C library: its calls that change a disk are counted, and made to fail as the program
// asks.

enum class fault : int { none, once, from_there_on, half, interrupted };

namespace {
fault wanted = fault::none;
int fails_at = 0, calls = 0;

/// Whether this call is to fail. Only writes can be done by half or be interrupted.
bool fails(bool writes = false) {
  if (wanted == fault::none || (wanted >= fault::half && !writes)) return false;
  ++calls;
  return wanted == fault::from_there_on ? calls >= fails_at : calls == fails_at;
}
template <class Function> Function* real(char const* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}
template <class Result, class... Arguments>
Result call(char const* name, int reason, Arguments... arguments) {
  if (!fails()) return real<Result(Arguments...)>(name)(arguments...);
  errno = reason;
  return Result(-1);
}
/// A write, of which half may be done, or which a signal may interrupt.
template <class... Rest>
ssize_t write_some(char const* name, int file, void const* bytes, size_t size, Rest... rest) {
  const auto write_now = real<ssize_t(int, void const*, size_t, Rest...)>(name);
  if (!fails(true)) return write_now(file, bytes, size, rest...);
  if (wanted == fault::half && size > 1) return write_now(file, bytes, size / 2, rest...);
  errno = wanted == fault::interrupted ? EINTR : ENOSPC;
  return -1;
}
}  // namespace

extern "C" {
/// Call `at` from now on fails, counted from 1.
void fail_call(int how, int at) { wanted = fault(how), fails_at = at, calls = 0; }
/// The calls since then; none fails from now on.
int calls_made() {
  wanted = fault::none;
  return calls;
}

ssize_t write(int file, void const* bytes, size_t size) { return write_some("write", file, bytes, size); }
ssize_t pwrite(int file, void const* bytes, size_t size, off_t at) {
  return write_some("pwrite", file, bytes, size, at);
}
ssize_t pwrite64(int file, void const* bytes, size_t size, off64_t at) {
  return write_some("pwrite64", file, bytes, size, at);
}
int fsync(int file) { return call<int>("fsync", EIO, file); }
int close(int file) {
  const int result = real<int(int)>("close")(file);  // a close that fails has closed the file
  if (!fails()) return result;
  errno = EIO;
  return -1;
}
int rename(char const* from, char const* to) noexcept { return call<int>("rename", EIO, from, to); }
int renameat2(int from_folder, char const* from, int to_folder, char const* to, unsigned flags) noexcept {
  return call<int>("renameat2", EIO, from_folder, from, to_folder, to, flags);
}
int mkdir(char const* path, mode_t mode) noexcept { return call<int>("mkdir", ENOSPC, path, mode); }
int unlink(char const* path) noexcept { return call<int>("unlink", EIO, path); }
int unlinkat(int folder, char const* path, int flags) noexcept {
  return call<int>("unlinkat", EIO, folder, path, flags);
}
int open(char const* path, int flags, ...) {
  std::va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  if ((flags & O_CREAT) != 0) return call<int>("open", ENOSPC, path, flags, mode);
  return real<int(char const*, int, ...)>("open")(path, flags);
}
}
