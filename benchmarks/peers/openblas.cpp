// SPDX-License-Identifier: BSD-3-Clause

#include <cblas.h>
#include <harness/serve.hpp>

// OpenBLAS: the dense product. The environment variable OPENBLAS_CORETYPE chooses other kernels.

int main(int argc, char** argv) {
  return bench::serve(argc, argv, [](std::string const&, bench::operands& o) -> bench::served {
    openblas_set_num_threads(o.threads);
    std::string version = openblas_get_config();  // "OpenBLAS 0.3.21 DYNAMIC_ARCH …"
    version.resize(std::min(version.find(' ', version.find(' ') + 1), version.size()));
    return {version + ", " + openblas_get_corename(), [&o] {
              cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, int(o.m), int(o.n), int(o.k), 1.0f,
                          o.values.data(), int(o.k), o.x.data(), int(o.n), 0.0f, o.y.data(), int(o.n));
            }};
  });
}
