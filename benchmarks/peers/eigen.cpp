// SPDX-License-Identifier: BSD-3-Clause

#include <Eigen/Sparse>
#include <harness/serve.hpp>

// Eigen: sparse times dense, both row by row.

namespace {

using sparse = Eigen::Map<Eigen::SparseMatrix<float, Eigen::RowMajor> const>;
using dense = Eigen::Map<Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>;

}  // namespace

int main(int argc, char** argv) {
  return bench::serve(argc, argv, [](std::string const&, bench::operands& o) -> bench::served {
    Eigen::setNbThreads(o.threads);
    static bench::csr_weights csr(o);
    const auto version = std::to_string(EIGEN_WORLD_VERSION) + "." + std::to_string(EIGEN_MAJOR_VERSION) +
                         "." + std::to_string(EIGEN_MINOR_VERSION);
    return {"Eigen " + version + ", " + Eigen::SimdInstructionSetsInUse(), [&o] {
              const sparse w(o.m, o.k, Eigen::Index(csr.values.size()), csr.row_start.data(), csr.cols.data(),
                             csr.values.data());
              dense y(o.y.data(), o.m, o.n);
              const dense x(o.x.data(), o.k, o.n);
              y.noalias() = w * x;
            }};
  });
}
