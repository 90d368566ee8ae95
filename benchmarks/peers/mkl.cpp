// SPDX-License-Identifier: BSD-3-Clause

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include <harness/serve.hpp>
#include <mkl.h>
#include <mkl_spblas.h>

// MKL: the dense product, the sparse one and that of two sparse matrices in CSR and BSR. With on_intel.cpp
// preloaded it takes the kernels that it takes on Intel's processors.

namespace {

void require(sparse_status_t status) {
  if (status != SPARSE_STATUS_SUCCESS)
    throw std::runtime_error("MKL: sparse status " + std::to_string(status));
}

/// With the instruction set that it says it would choose.
std::string library() {
  MKLVersion v;
  MKL_Get_Version(&v);
  const int branch = mkl_cbwr_get_auto_branch();
  const char* const kernels = branch == MKL_CBWR_AVX512      ? "AVX-512"
                              : branch == MKL_CBWR_AVX512_E1 ? "AVX-512 E1"
                              : branch == MKL_CBWR_AVX2      ? "AVX2"
                                                             : "kernels of its choice";
  const std::string name = "MKL " + std::to_string(v.MajorVersion) + "." + std::to_string(v.UpdateVersion);
  if (std::getenv("LD_PRELOAD") && branch < MKL_CBWR_AVX512)
    throw std::runtime_error(name +
                             " does not ask for the processor's maker where it can be answered; 2024.2 does");
  return name + ", " + kernels;
}

}  // namespace

int main(int argc, char** argv) {
  return bench::serve(argc, argv, [](std::string const& form, bench::operands& o) -> bench::served {
    mkl_set_num_threads(o.threads);
    if (form == "dense")
      return {library(), [&o] {
                cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, int(o.m), int(o.n), int(o.k), 1.0f,
                            o.values.data(), int(o.k), o.x.data(), int(o.n), 0.0f, o.y.data(), int(o.n));
              }};
    sparse_matrix_t w{};
    if (form.starts_with("bsr")) {
      require(mkl_sparse_s_create_bsr(&w, SPARSE_INDEX_BASE_ZERO, SPARSE_LAYOUT_ROW_MAJOR, int(o.m / o.block),
                                      int(o.k / o.block), int(o.block), o.row_start.data(),
                                      o.row_start.data() + 1, o.cols.data(), o.values.data()));
    } else {
      static bench::csr_weights csr(o);
      require(mkl_sparse_s_create_csr(&w, SPARSE_INDEX_BASE_ZERO, int(o.m), int(o.k), csr.row_start.data(),
                                      csr.row_start.data() + 1, csr.cols.data(), csr.values.data()));
    }
    matrix_descr general{};
    general.type = SPARSE_MATRIX_TYPE_GENERAL;
    if (form.ends_with("product")) {
      static sparse_matrix_t c{};
      return {
          library(),
          [w] {
            if (c) mkl_sparse_destroy(c);
            require(mkl_sparse_spmm(SPARSE_OPERATION_NON_TRANSPOSE, w, w, &c));
          },
          [&o, general] {
            std::fill(o.x.begin(), o.x.end(), 0.0f);
            for (std::int64_t i = 0; i < o.n; ++i) o.x.data()[i * (o.n + 1)] = 1;
            require(mkl_sparse_s_mm(SPARSE_OPERATION_NON_TRANSPOSE, 1.0f, c, general, SPARSE_LAYOUT_ROW_MAJOR,
                                    o.x.data(), int(o.n), int(o.n), 0.0f, o.y.data(), int(o.n)));
          }};
    }
    mkl_sparse_set_mm_hint(w, SPARSE_OPERATION_NON_TRANSPOSE, general, SPARSE_LAYOUT_ROW_MAJOR, int(o.n),
                           1000);
    require(mkl_sparse_optimize(w));
    return {
        library(), [&o, w, general] {
          require(mkl_sparse_s_mm(SPARSE_OPERATION_NON_TRANSPOSE, 1.0f, w, general, SPARSE_LAYOUT_ROW_MAJOR,
                                  o.x.data(), int(o.n), int(o.n), 0.0f, o.y.data(), int(o.n)));
        }};
  });
}
