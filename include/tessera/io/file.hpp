// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cerrno>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tessera/core/error.hpp>
#include <tessera/io/memory_limit.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace io {

namespace detail {

/// Throws io_error with the text of `code`, a value of errno; `offset` is how far the file was read or
/// written.
[[noreturn]] void system_failure(char const* operation, std::string const& path, std::uint64_t offset,
                                 int code);

/// An open file, closed at the end of its life.
class descriptor {
 public:
  explicit descriptor(int number) : number_(number) {}
  descriptor(descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  descriptor& operator=(descriptor other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  int number() const { return number_; }
  /// Closes now; false with errno if that fails, which may mean that data was lost.
  bool close() { return ::close(std::exchange(number_, -1)) == 0; }

 private:
  int number_;
};

/// "a folder", "a link", …
char const* kind_of_file(mode_t mode);

/// A regular file, also behind links, and its size. Throws io_error for anything else, and never waits: for
/// the writer of a pipe, say.
struct file_to_read {
  descriptor file;
  std::size_t size;
};
file_to_read open_to_read(std::string const& path);

}  // namespace detail

/// The bytes of a regular file, all of them, copied to memory. Throws io_error, at once, for a folder, a
/// pipe, a socket or a device, and for more bytes than the limit, before there is memory for them.
std::string read_file(std::string const& path, memory_limit limit = {});

/// The bytes of a regular file, mapped: read from disk at first access. Throws io_error, at once, for
/// anything else. Nobody may shorten the file while it is mapped; to replace it is harmless.
class mapped_file {
 public:
  explicit mapped_file(std::string path);
  mapped_file(mapped_file&& other) noexcept
      : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}
  mapped_file& operator=(mapped_file other) noexcept {
    std::swap(path_, other.path_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~mapped_file() {
    if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  }

  std::string const& path() const { return path_; }
  std::span<std::byte const> bytes() const { return bytes_; }
  /// The same bytes, to be changed by this process for itself: the file stays as it is.
  std::span<std::byte> writable_bytes() const;

 private:
  std::string path_;
  std::span<std::byte const> bytes_;
};

/// Writes bytes one after the other, without a buffer: hand over large pieces.
class file_writer {
 public:
  /// `path` is the name for errors.
  file_writer(detail::descriptor file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}

  void write(std::span<std::byte const> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }

  /// Overwrites the bytes at `offset`.
  void rewrite(std::uint64_t offset, std::string_view text);

  /// Bytes written so far.
  std::uint64_t offset() const { return offset_; }

  /// Returns when everything is on the disk.
  void close();

 private:
  [[noreturn]] void fail() const { detail::system_failure("write", path_, offset_, errno); }

  detail::descriptor file_;
  std::string path_;
  std::uint64_t offset_ = 0;
};

namespace detail {

// A writer makes PATH.partial-PROCESS-NUMBER and renames it to PATH when it is complete. Until then it holds
// a lock on it, which the system releases at the end of the process, however it ends: a partial without a
// lock was left behind (io::remove_unfinished).

std::string partial_name(std::string const& path, char const* kind = ".partial-");

inline bool same_file(struct stat const& a, struct stat const& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}
/// Whether an open file or folder still has this name.
bool has_name(descriptor const& file, std::string const& name);
/// Locks a partial that this process has just made. False if another one has taken it for a leftover. A file
/// system without locks has no leftovers that are removed.
bool keep_partial(descriptor const& file, std::string const& name);

/// Brings the names in the folder of `path` to the disk. Not every file system can promise that.
void sync_folder_of(std::string const& path);

/// A new file beside the one it will replace; removed if it never does.
class replacement {
 public:
  explicit replacement(std::string const& path) : path_(path) { require_replaceable(); }
  replacement(replacement const&) = delete;
  replacement& operator=(replacement const&) = delete;
  ~replacement() {
    if (!name_.empty()) ::unlink(name_.c_str());
  }

  file_writer open();

  void replace(std::uint64_t size);

 private:
  void require_replaceable() const;

  std::string path_, name_;
  descriptor kept_{-1};
};

}  // namespace detail

/// Makes or replaces a file as a whole: `write(out)` fills a temporary file in the same folder through
/// `file_writer& out`, which takes the name `path` only when all of it is on the disk. If anything throws,
/// the temporary file is removed and an earlier file stays as it was. Of several writers the last one wins.
/// Throws io_error with the path, the byte reached and the system's reason, say a full disk, and for anything
/// in the file's place that is no regular file: links are not followed.
template <std::invocable<file_writer&> Write> void write_atomically(std::string const& path, Write&& write) {
  detail::replacement file(path);
  file_writer out = file.open();
  write(out);
  out.close();
  file.replace(out.offset());
}

/// Throws the io_error that would keep write_atomically from beginning to write a file; the file stays as it
/// is. Programs that compute long call it before.
void require_writable(std::string const& path);

/// Makes or replaces a file with this text.
void write_atomically(std::string const& path, std::string_view text);

#ifdef TESSERA_BODY

namespace detail {

TESSERA_BODY void system_failure(char const* operation, std::string const& path, std::uint64_t offset,
                                 int code) {
  throw io_error(message("[", operation, " ", path, offset > 0 ? message("] byte ", offset, ": ") : "] ",
                         std::generic_category().message(code)));
}

TESSERA_BODY char const* kind_of_file(mode_t mode) {
  return S_ISREG(mode)    ? "a regular file"
         : S_ISDIR(mode)  ? "a folder"
         : S_ISLNK(mode)  ? "a link"
         : S_ISFIFO(mode) ? "a pipe"
         : S_ISSOCK(mode) ? "a socket"
                          : "a device";
}

TESSERA_BODY file_to_read open_to_read(std::string const& path) {
  descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  const int failure = errno;  // of a socket: no such device
  struct stat about{};
  if ((file.number() < 0 ? ::stat(path.c_str(), &about) : ::fstat(file.number(), &about)) == 0 &&
      !S_ISREG(about.st_mode))
    throw io_error(message("[read ", path, "] is ", kind_of_file(about.st_mode), ", not a regular file"));
  if (file.number() < 0) system_failure("read", path, 0, failure);
  return {std::move(file), static_cast<std::size_t>(about.st_size)};
}

}  // namespace detail

TESSERA_BODY std::string read_file(std::string const& path, memory_limit limit) {
  const auto [file, size] = detail::open_to_read(path);
  const auto require_allowed = [&](std::uint64_t bytes) {
    if (bytes > limit.bytes)
      throw io_error(message("[read ", path, "] ", bytes, " bytes, but the memory_limit is ", limit.bytes));
  };
  require_allowed(size);
  std::string text(size + 4096, '\0');  // files of /proc say 0
  for (std::size_t filled = 0;;) {
    require_allowed(filled);
    if (filled == text.size()) text.resize(2 * filled);
    const ssize_t got = ::read(file.number(), text.data() + filled, text.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) detail::system_failure("read", path, filled, errno);
    filled += static_cast<std::size_t>(got);
    if (got > 0) continue;
    text.resize(filled);
    return text;
  }
}

TESSERA_BODY mapped_file::mapped_file(std::string path) : path_(std::move(path)) {
  const auto [file, size] = detail::open_to_read(path_);
  if (size == 0) return;  // cannot be mapped
  // No memory is set aside for pages that writable_bytes() might change.
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE | MAP_NORESERVE, file.number(), 0);
  if (address == MAP_FAILED) detail::system_failure("read", path_, 0, errno);
  bytes_ = {static_cast<std::byte const*>(address), size};
}

TESSERA_BODY std::span<std::byte> mapped_file::writable_bytes() const {
  std::byte* const first = const_cast<std::byte*>(bytes_.data());
  if (!bytes_.empty() && ::mprotect(first, bytes_.size(), PROT_READ | PROT_WRITE) != 0)
    detail::system_failure("map", path_, 0, errno);
  return {first, bytes_.size()};
}

TESSERA_BODY void file_writer::write(std::span<std::byte const> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_.number(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail();
    offset_ += static_cast<std::uint64_t>(written);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

TESSERA_BODY void file_writer::rewrite(std::uint64_t offset, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::pwrite(file_.number(), text.data(), text.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) detail::system_failure("write", path_, offset, errno);
    offset += static_cast<std::uint64_t>(written);
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

TESSERA_BODY void file_writer::close() {
  if (::fsync(file_.number()) != 0 || !file_.close()) fail();
}

namespace detail {

TESSERA_BODY std::string partial_name(std::string const& path, char const* kind) {
  static std::atomic<unsigned> number = 0;
  return message(path, kind, ::getpid(), "-", number++);
}

TESSERA_BODY bool has_name(descriptor const& file, std::string const& name) {
  struct stat opened{}, named{};
  return ::fstat(file.number(), &opened) == 0 && ::lstat(name.c_str(), &named) == 0 &&
         same_file(opened, named);
}

TESSERA_BODY bool keep_partial(descriptor const& file, std::string const& name) {
  if (::flock(file.number(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return false;
  return has_name(file, name);
}

TESSERA_BODY void sync_folder_of(std::string const& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const descriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.number() >= 0) ::fsync(opened.number());
}

TESSERA_BODY file_writer replacement::open() {
  for (;;) {
    std::string name = partial_name(path_);
    descriptor file(::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (file.number() < 0 && errno == EEXIST) continue;  // left by a killed process of this number
    if (file.number() < 0) system_failure("write", path_, 0, errno);
    if (!keep_partial(file, name)) continue;
    kept_ = descriptor(::fcntl(file.number(), F_DUPFD_CLOEXEC, 0));  // the lock outlives the writer
    name_ = std::move(name);
    return file_writer(std::move(file), path_);
  }
}

TESSERA_BODY void replacement::replace(std::uint64_t size) {
  require_replaceable();  // again: something may have come during the writing
  if (std::rename(name_.c_str(), path_.c_str()) != 0) system_failure("write", path_, size, errno);
  name_.clear();
  sync_folder_of(path_);
}

TESSERA_BODY void replacement::require_replaceable() const {
  struct stat about{};
  if (::lstat(path_.c_str(), &about) == 0 && !S_ISREG(about.st_mode))
    throw io_error(message("[write ", path_, "] there is ", kind_of_file(about.st_mode),
                           " of that name; give the name of a file"));
}

}  // namespace detail

TESSERA_BODY void require_writable(std::string const& path) { detail::replacement(path).open(); }

TESSERA_BODY void write_atomically(std::string const& path, std::string_view text) {
  write_atomically(path, [&](file_writer& out) { out.write(text); });
}

#endif

}}}  // namespace tessera::TESSERA_ISA::io
