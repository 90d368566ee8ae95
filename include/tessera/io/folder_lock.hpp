// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cerrno>
#include <concepts>
#include <cstddef>
#include <string>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/io/file.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace io {

/// Keeps a folder for one process that writes to it. The lock is on the file `.lock` in the folder, which
/// holds the number of the process and stays; the system releases the lock at the end of the process, however
/// it ends.
class folder_lock {
 public:
  /// Throws io_error if the folder has a lock, which names the process, or cannot be written to, and for a
  /// `.lock` that is not of this kind, which stays as it is.
  explicit folder_lock(std::string const& folder);

  /// Throws io_error if the folder has been moved or removed since it was locked: files written to its path
  /// would be parted from the rest.
  void require_in_place() const;

  /// Calls write(), which writes to the folder. Throws as require_in_place if the folder has been moved
  /// before or meanwhile.
  template <std::invocable Write> void keep_in_place(Write&& write) const {
    require_in_place();
    try {
      write();
    } catch (io_error const&) {
      require_in_place();  // that is the reason
      throw;
    }
    require_in_place();
  }

 private:
  static detail::descriptor open(std::string const& path);
  /// The number of a process; empty in a new file.
  std::string read_owner(std::string const& path) const;
  [[noreturn]] static void refuse(std::string const& path, char const* what);

  std::string path_;
  detail::descriptor folder_, file_;
};

#ifdef TESSERA_BODY

TESSERA_COLD TESSERA_BODY folder_lock::folder_lock(std::string const& folder)
    : path_(folder),
      folder_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
      file_(open(folder + "/.lock")) {
  const std::string owner = read_owner(folder + "/.lock");
  if (::flock(file_.number(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) detail::system_failure("lock", folder, 0, errno);
    throw io_error(message("[lock ", folder, "] process ", owner,
                           " writes to this folder; wait for its end, or stop it"));
  }
  const std::string process = std::to_string(::getpid());
  if (::ftruncate(file_.number(), 0) != 0 ||
      ::pwrite(file_.number(), process.data(), process.size(), 0) != ssize_t(process.size()))
    detail::system_failure("lock", folder, 0, errno);
}

TESSERA_COLD TESSERA_BODY void folder_lock::require_in_place() const {
  struct stat locked{}, named{};
  if (folder_.number() < 0 || ::fstat(folder_.number(), &locked) != 0) return;
  if (::stat(path_.c_str(), &named) == 0 && detail::same_file(locked, named)) return;
  std::string now(4096, '\0');  // Linux says where an open folder is
  const std::string link = message("/proc/self/fd/", folder_.number());
  const ssize_t length = ::readlink(link.c_str(), now.data(), now.size());
  now.resize(length > 0 ? std::size_t(length) : 0);
  const bool is_gone = locked.st_nlink == 0 || now.empty() || now.ends_with(" (deleted)");
  throw io_error(message("[write ", path_, "] the folder was ",
                         is_gone ? "removed or moved" : message("moved to ", now),
                         " while this process wrote to it; nothing more is written"));
}

TESSERA_BODY detail::descriptor folder_lock::open(std::string const& path) {
  // A pipe would wait for a reader.
  detail::descriptor file(
      ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666));
  if (file.number() < 0 && errno == ELOOP) refuse(path, "a link");
  if (file.number() < 0) detail::system_failure("lock", path, 0, errno);
  struct stat about{};
  if (::fstat(file.number(), &about) != 0) detail::system_failure("lock", path, 0, errno);
  if (!S_ISREG(about.st_mode)) refuse(path, detail::kind_of_file(about.st_mode));
  if (about.st_nlink > 1) refuse(path, "a file with other names");
  return file;
}

TESSERA_BODY std::string folder_lock::read_owner(std::string const& path) const {
  std::string owner(20, '\0');
  const ssize_t length = ::pread(file_.number(), owner.data(), owner.size(), 0);
  if (length < 0) detail::system_failure("lock", path, 0, errno);
  owner.resize(std::size_t(length));
  if (owner.find_first_not_of("0123456789") != owner.npos || length == 20)
    refuse(path, "a file that holds other things than the number of a process");
  return owner;
}

TESSERA_BODY void folder_lock::refuse(std::string const& path, char const* what) {
  throw io_error(message("[lock ", path, "] there is ", what, "; it stays: move it away"));
}

#endif

}}}  // namespace tessera::TESSERA_ISA::io
