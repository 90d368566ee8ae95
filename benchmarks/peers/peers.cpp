// SPDX-License-Identifier: BSD-3-Clause

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <harness/machine.hpp>
#include <harness/peer.hpp>

// Other libraries. Some choose kernels that are not their best on processors of other makers than Intel: they
// compete as they come, and with their best kernels forced.

namespace bench { namespace {

std::string built(std::string const& file) {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / file).string();
}

/// Whether the kernels for AVX-512 would run, and may not be chosen.
bool may_force() { return simd::lanes<float, simd::native> == 16 && cpu_info("vendor_id") != "GenuineIntel"; }

/// A command's last word is the form of the product.
void enter(std::string const& operation, peer who) {
  std::string const form = who.command.back();
  const bool dense = operation == "dense" || (operation == "layer" && form == "dense layer");
  const bool needs_blocks = form.starts_with("bsr") || form == "batch-reduce";
  contestants().push_back({who.name, operation, [=](workload const& what) -> std::optional<job> {
                             if (dense != (what.density == 1) || (needs_blocks && what.block == 1))
                               return std::nullopt;
                             return peer_job(who, what);
                           }});
}

/// MKL, which is a part of PyTorch too, with the kernels that it chooses, and with its kernels for Intel.
void enter_both(std::string const& operation, peer who) {
  enter(operation, who);
  who.name += " as on Intel";
  who.variables.push_back("LD_PRELOAD=" + built("libbench-on-intel.so"));
  if (may_force()) enter(operation, who);
}

bool enter_all() {
  const auto missing = [](std::string const& package) {
    return "it was not found when this was built (" + package + ")";
  };
  enter("dense", {"oneDNN", {built("bench-onednn"), "dense"}, {}, missing("Debian: libdnnl-dev")});
  peer openblas{"OpenBLAS", {built("bench-openblas"), "dense"}, {}, missing("Debian: libopenblas-dev")};
  enter("dense", openblas);
  openblas.name += " SkylakeX";
  openblas.variables = {"OPENBLAS_CORETYPE=SkylakeX"};
  if (may_force()) enter("dense", openblas);
  enter("forward", {"Eigen", {built("bench-eigen"), "csr"}, {}, missing("Debian: libeigen3-dev")});
  for (const std::string form : {"spmdm", "batch-reduce"})
    enter("forward", {"libxsmm " + form, {built("bench-libxsmm"), form}, {}, missing("Debian: libxsmm-dev")});

  const std::string no_python = "there is no python3";
  const std::string pytorch = TESSERA_BENCH_DIR "/peers/pytorch.py",
                    sparseprop = TESSERA_BENCH_DIR "/layer/sparseprop.py";
  for (auto const& [form, name] : {std::pair{"dense", ""}, {"csr", " CSR"}, {"bsr", " BSR"}}) {
    const std::string operation = form == std::string("dense") ? "dense" : "forward";
    enter_both(operation, {std::string("MKL") + name,
                           {built("bench-mkl"), form},
                           {"MKL_THREADING_LAYER=GNU"},
                           missing("pip install mkl==2024.2.2 mkl-include==2024.2.2")});
    enter_both(operation, {std::string("PyTorch") + name, {"python3", pytorch, form}, {}, no_python});
  }
  for (auto const& [form, name] : {std::pair{"csr product", "CSR"}, {"bsr product", "BSR"}}) {
    enter_both("sparse product", {std::string("MKL ") + name,
                                  {built("bench-mkl"), form},
                                  {"MKL_THREADING_LAYER=GNU"},
                                  missing("pip install mkl==2024.2.2 mkl-include==2024.2.2")});
    enter("sparse product", {std::string("SciPy ") + name,
                             {"python3", TESSERA_BENCH_DIR "/sparse_product/scipy.py", form},
                             {},
                             no_python});
  }
  enter_both("layer", {"PyTorch", {"python3", pytorch, "dense layer"}, {}, no_python});
  enter("layer", {"SparseProp", {"python3", sparseprop, "layer"}, {}, no_python});
  enter("layer", {"SparseProp kernels", {"python3", sparseprop, "kernels"}, {}, no_python});
  return true;
}

[[maybe_unused]] const bool entered = enter_all();

}}  // namespace bench
