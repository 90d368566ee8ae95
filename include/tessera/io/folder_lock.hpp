// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cerrno>
#include <string>

#include <fcntl.h>
#include <sys/file.h>
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
  /// Throws io_error if the folder has a lock, which names the process, or cannot be written to.
  TESSERA_COLD explicit folder_lock(std::string const& folder) : file_(open(folder + "/.lock")) {
    if (::flock(file_.number(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) detail::system_failure("lock", folder, 0, errno);
      throw io_error(message("[lock ", folder, "] process ", read_file(folder + "/.lock"),
                             " writes to this folder; wait for its end, or stop it"));
    }
    const std::string process = std::to_string(::getpid());
    if (::ftruncate(file_.number(), 0) != 0 ||
        ::pwrite(file_.number(), process.data(), process.size(), 0) != ssize_t(process.size()))
      detail::system_failure("lock", folder, 0, errno);
  }

 private:
  static detail::descriptor open(std::string const& path) {
    detail::descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (file.number() < 0) detail::system_failure("lock", path, 0, errno);
    return file;
  }

  detail::descriptor file_;
};

}}}  // namespace tessera::TESSERA_ISA::io
