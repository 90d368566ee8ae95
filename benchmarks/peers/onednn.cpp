// SPDX-License-Identifier: BSD-3-Clause

#include <dnnl.h>
#include <harness/serve.hpp>
#include <omp.h>

// oneDNN: the dense product.

int main(int argc, char** argv) {
  return bench::serve(argc, argv, [](std::string const&, bench::operands& o) -> bench::served {
    omp_set_num_threads(o.threads);
    const dnnl_version_t* const v = dnnl_version();
    const auto version =
        std::to_string(v->major) + "." + std::to_string(v->minor) + "." + std::to_string(v->patch);
    const char* isa = "another instruction set";
    switch (int(dnnl_get_effective_cpu_isa())) {
      case dnnl_cpu_isa_avx2:
        isa = "AVX2";
        break;
      case dnnl_cpu_isa_avx512_core:
        isa = "AVX-512";
        break;
      case dnnl_cpu_isa_avx512_core_vnni:
        isa = "AVX-512 VNNI";
        break;
      case dnnl_cpu_isa_avx512_core_bf16:
        isa = "AVX-512 BF16";
        break;
    }
    return {"oneDNN " + version + ", " + isa, [&o] {
              if (dnnl_sgemm('N', 'N', o.m, o.n, o.k, 1.0f, o.values.data(), o.k, o.x.data(), o.n, 0.0f,
                             o.y.data(), o.n) != dnnl_success)
                throw std::runtime_error("dnnl_sgemm refused its operands");
            }};
  });
}
