// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <utility>

#include <tessera/core/array_ref.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/cpu.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/function_ref.hpp>
#include <tessera/core/ieee_arithmetic.hpp>
#include <tessera/core/memory.hpp>
#include <tessera/exec/available_threads.hpp>
#include <tessera/exec/denormals.hpp>
#include <tessera/exec/executor.hpp>
#include <tessera/exec/index_ranges.hpp>
#include <tessera/exec/machine.hpp>
#include <tessera/exec/part_hook.hpp>
#include <tessera/exec/phase.hpp>
#include <tessera/exec/slow_build.hpp>
#include <tessera/exec/sole_user.hpp>
#include <tessera/exec/thread_pool.hpp>

namespace tessera { inline namespace TESSERA_ISA {

/// Whether a context may have more threads than `exec::available_threads()`. They only slow each other down,
/// but a test may want them.
enum class oversubscribe { refused, allowed };

/// This number of threads, or of the cores this process may use if these are fewer: `context ctx(at_most(4))`
inline int at_most(int threads) { return std::min(threads, exec::available_threads()); }

namespace detail {

struct page {
  std::byte bytes[4096];
};

/// Page-aligned memory that only grows; its content is lost when it does.
class page_buffer {
 public:
  std::byte* at_least(std::size_t bytes);

 private:
  aligned_array<page> pages_;
  std::size_t size_ = 0;
};

}  // namespace detail

/// Where computations run: an executor and the scratch memory of its bodies. Used by one thread at a time:
/// one that begins a run while another thread is in one gets an error.
class context {
 public:
  /// A thread pool on all the cores this process may use.
  context() : context((require_compiled_instruction_set(), exec::available_threads())) {}

  /// A new thread pool; with 1 thread everything is done by the caller. Throws option_error for fewer
  /// threads than 1 or, unless allowed, more than cores.
  TESSERA_COLD explicit context(int threads, oversubscribe more_than_cores = oversubscribe::refused)
      : context(new_pool(threads, more_than_cores)) {}

  /// The executor of the user, who keeps it alive and may share it between contexts.
  template <exec::executor Executor>
    requires(!std::is_same_v<Executor, context>)
  explicit context(Executor& executor)
      : executor_(on_this_cpu(std::addressof(executor))),
        run_([](void* object, int count, exec::body_ref body) {
          static_cast<Executor*>(object)->run(count, body);
        }),
        concurrency_(checked_concurrency(executor.concurrency())),
        ranges_(concurrency_),
        users_(concurrency_) {
    machine_ = this_machine();
    machine_.workers = concurrency_;
    if constexpr (exec::stand_in<Executor>) machine_ = executor.stands_for();
    if constexpr (exec::phase_executor<Executor>)
      run_phases_ = [](void* object, array_ref<exec::phase> all) {
        static_cast<Executor*>(object)->run(all);
      };
  }

  context(context const&) = delete;
  context& operator=(context const&) = delete;

  /// The most bodies of a run that may run at the same time.
  int concurrency() const { return concurrency_; }

  /// The machine for which runs on this context are cut into tiles.
  machine const& runs_on() const { return machine_; }
  /// Takes an engine from the choice of products, whose results may then differ in their last bits. Throws
  /// option_error for `fma`, which all products have.
  void forbid(engine which);

  /// Calls body(index, scratch) for index = 0 … count-1, each once, with denormals flushed.
  ///   scratch   std::byte*, at least the reserved bytes, 64-byte aligned, this body's alone while it runs;
  ///             not cleared
  ///   hooks     entered and left by each thread around its part, whatever the executor
  /// If bodies throw, one of their exceptions arrives here, and bodies not yet begun may be left out. Called
  /// from inside a body, it calls its own bodies in order on that thread, with scratch allocated for them.
  template <class Body> void run(int count, Body&& body, array_ref<exec::part_hook> hooks = {}) {
    run_within(users_.enter("run"), count, body, hooks);
  }

  /// Calls compute(phase, task, scratch) of all = begin(shared) for the tasks of phases 0 … phases-1, one
  /// phase behind the other. The executor gets them as exec::phase, if it takes these; they do not throw.
  ///   scratch_bytes   as of reserve_scratch
  ///   shared_bytes    of shared_scratch, whose buffer `begin` gets; 0: it gets null
  ///   all             has tasks(phase), hooks(phase), for_each_kind(phase, visit) and describe(phase, task)
  ///                   too
  template <class Begin>
  void run_phases(int phases, std::size_t scratch_bytes, std::size_t shared_bytes, Begin const& begin) {
    const exec::sole_user::entry entry = users_.enter("run");
    grow_scratch(entry, scratch_bytes);
    const auto all = begin(shared_bytes > 0 ? grow_shared(entry, shared_bytes) : nullptr);
    if (run_phases_ && entry) return run_by_executor(entry, phases, all);
    for (int p = 0; p < phases; ++p)
      run_within(
          entry, all.tasks(p), [&](int task, std::byte* scratch) { all.compute(p, task, scratch); },
          all.hooks(p));
  }

  /// Gives every body at least this many bytes of scratch in runs to come. Allocates only to grow, which is
  /// an error inside a body.
  void reserve_scratch(std::size_t bytes);

  /// A buffer of at least this many bytes, page-aligned, shared by all bodies of a run. There is one:
  /// the next call may return the same address, or free it to grow. An error inside a body.
  std::byte* shared_scratch(std::size_t bytes);

 private:
  TESSERA_COLD explicit context(std::unique_ptr<exec::thread_pool> pool) : context(*pool) {
    pool_ = std::move(pool);
  }

  TESSERA_COLD static std::unique_ptr<exec::thread_pool> new_pool(int threads,
                                                                  oversubscribe more_than_cores) {
    require_compiled_instruction_set();
    if (threads < 1)
      throw option_error(message("[context] ", threads, " threads asked for; at least 1 is needed, which is ",
                                 "the calling thread: write context ctx; for all cores"));
    const int available = exec::available_threads();
    if (threads > available && more_than_cores == oversubscribe::refused)
      throw option_error(message("[context] ", threads, " threads asked for, but this process may use ",
                                 available, " cores: write context(at_most(", threads,
                                 ")) for as many of them as there are, or pass oversubscribe::allowed"));
    return std::make_unique<exec::thread_pool>(threads);
  }

  template <class Body>
  void run_within(exec::sole_user::entry const& entry, int count, Body const& body,
                  array_ref<exec::part_hook> hooks) {
    if (!entry) {
      aligned_array<std::byte> scratch(scratch_bytes_);
      const exec::part_scope around(hooks);
      return exec::serial{}.run(count, [&](int index) { body(index, scratch.data()); });
    }
    if (count <= 0) return;
    // The executor gets one body per part, not per index: a part has its own scratch, and contiguous ranges
    // with stealing serve every executor.
    const auto drain = [&, user = entry.thread()](int part) {
      const exec::sole_user::work work(users_, part, user);
      const exec::part_scope around(hooks);
      std::byte* const scratch = scratch_ + static_cast<std::size_t>(part) * scratch_bytes_;
      ranges_.drain(part, [&](int index) { body(index, scratch); });
    };
    run_(executor_, ranges_.deal(count), drain);
    ranges_.rethrow_failure();
  }

  template <class All> struct phases_of_workers {
    All const& of;
    context const& ctx;
    std::thread::id user;
    int tasks(int p) const { return of.tasks(p); }
    void for_each_kind(int p, function_ref<void(char const*)> visit) const { of.for_each_kind(p, visit); }
    exec::task_description describe(int p, int task) const { return of.describe(p, task); }
    void compute(int p, int task, int worker) const {
      const exec::sole_user::work work(ctx.users_, worker, user);
      const exec::part_scope around(of.hooks(p));
      of.compute(p, task, ctx.scratch_ + static_cast<std::size_t>(worker) * ctx.scratch_bytes_);
    }
  };

  template <class All>
  TESSERA_COLD void run_by_executor(exec::sole_user::entry const& entry, int phases, All const& all) {
    const phases_of_workers<All> of{all, *this, entry.thread()};
    const auto list = std::make_unique<exec::phase[]>(std::size_t(phases));
    for (int p = 0; p < phases; ++p) list[std::size_t(p)] = exec::phase(of, p);
    run_phases_(executor_, {list.get(), std::size_t(phases)});
  }

  /// Before any other member is made: zeros, too, are written by the instructions that are asked for.
  static void* on_this_cpu(void const* executor) {
    require_compiled_instruction_set();
    exec::warn_of_slow_build();
    {
      const exec::flush_denormals nearest;  // whatever mode the caller set: it is the compiler that is asked
      require_ieee_arithmetic();
    }
    return const_cast<void*>(executor);
  }

  static int checked_concurrency(int concurrency);

  void grow_scratch(exec::sole_user::entry const& entry, std::size_t bytes);
  std::byte* grow_shared(exec::sole_user::entry const& entry, std::size_t bytes);
  static void require_outside(exec::sole_user::entry const& entry, const char* operation);

  std::unique_ptr<exec::thread_pool> pool_;  // unless the executor is the user's
  void* executor_;
  void (*run_)(void* executor, int count, exec::body_ref body);
  void (*run_phases_)(void* executor, array_ref<exec::phase> all) = nullptr;  // if it takes them
  int concurrency_;
  machine machine_;
  exec::index_ranges ranges_;
  exec::sole_user users_;

  detail::page_buffer scratches_, shared_;
  std::byte* scratch_ = nullptr;
  std::size_t scratch_bytes_ = 0;  // of each part
};

#ifdef TESSERA_BODY

namespace detail {

TESSERA_BODY std::byte* page_buffer::at_least(std::size_t bytes) {
  if (bytes > size_) {
    pages_ = {};  // before more are allocated
    size_ = 0;
    pages_ = aligned_array<page>(bytes / sizeof(page) + 2);  // one for the rest, one to align in
    size_ = bytes;
  }
  if (size_ == 0) return nullptr;
  auto* const begin = reinterpret_cast<std::byte*>(pages_.data());
  const auto past_page = reinterpret_cast<std::uintptr_t>(begin) % sizeof(page);
  return begin + (sizeof(page) - past_page) % sizeof(page);
}

}  // namespace detail

TESSERA_BODY void context::forbid(engine which) {
  if (which == engine::fma)
    throw option_error("[forbid] fma cannot be forbidden: a product that no other engine takes has it");
  machine_.engines.forbid(which);
}

TESSERA_COLD TESSERA_BODY void context::reserve_scratch(std::size_t bytes) {
  grow_scratch(users_.enter("reserve_scratch"), bytes);
}

TESSERA_COLD TESSERA_BODY std::byte* context::shared_scratch(std::size_t bytes) {
  return grow_shared(users_.enter("shared_scratch"), bytes);
}

TESSERA_COLD TESSERA_BODY void context::grow_scratch(exec::sole_user::entry const& entry, std::size_t bytes) {
  if (bytes <= scratch_bytes_) return;
  require_outside(entry, "reserve_scratch");
  const std::size_t each = checked_multiply((bytes - 1) / sizeof(detail::page) + 1, sizeof(detail::page));
  const std::size_t all = checked_multiply(each, static_cast<std::size_t>(concurrency()));
  scratch_bytes_ = 0;
  scratch_ = scratches_.at_least(all);
  scratch_bytes_ = each;
}

TESSERA_COLD TESSERA_BODY std::byte* context::grow_shared(exec::sole_user::entry const& entry,
                                                          std::size_t bytes) {
  require_outside(entry, "shared_scratch");
  return shared_.at_least(bytes);
}

TESSERA_BODY int context::checked_concurrency(int concurrency) {
  if (concurrency < 1)
    throw option_error(message("[context] the executor's concurrency() is ", concurrency,
                               "; it must be at least 1, the most bodies that may run at the same time"));
  return concurrency;
}

TESSERA_COLD TESSERA_BODY void context::require_outside(exec::sole_user::entry const& entry,
                                                        const char* operation) {
  if (!entry)
    throw error(
        message("[", operation,
                "] the context is in use by a body of its own: give the body a context of its own, or "
                "make this call before run"));
}

#endif

}}  // namespace tessera::TESSERA_ISA
