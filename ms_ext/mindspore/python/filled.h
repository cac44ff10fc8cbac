// What a gradient is where nobody used a result, and where a computation ends.
#pragma once

#include <algorithm>
#include <complex>
#include <cstring>

#include "function_of.h"
#include "include/pynative/utils/pyboost/custom/pyboost_extension.h"
#include "mindspore/python/dtype.h"

namespace ms_ext::pynative {

// A tensor of equal numbers in a fraction of the time of MindSpore's operators: on a CPU at once, on a GPU in the order
// of the stream.
class Filled : public ms::pynative::PyboostRunner {
 public:
  Filled(const std::string &name, bool on_host) : PyboostRunner(name), on_host_(on_host) {}

  void LaunchKernel() override {
    const ms::Tensor &result = outputs().front();
    const auto count = static_cast<size_t>(result.numel());
    if (count == 0) return;
    if (on_host_) {
      fill(result.GetDataPtr(), count, result.data_type());
    } else {
      fill_on_gpu(result.GetDataPtr(), count, result.data_type(), stream());
    }
  }

 protected:
  virtual void fill(void *data, size_t count, mindspore::TypeId dtype) const = 0;
  virtual void fill_on_gpu(void *data, size_t count, mindspore::TypeId dtype, void *stream) const = 0;

  void _Run() override {
    if (!on_host_) return PyboostRunner::_Run();
    _PrepareDeviceAddress();
    _MallocDeviceAddress();
    LaunchKernel();
  }

  void _DispatchLaunchTask() override { LaunchKernel(); }  // as the kernels (runner.h)

 private:
  bool on_host_;
};

class Zeros final : public Filled {
 public:
  explicit Zeros(bool on_host) : Filled("zeros", on_host) {}

 protected:
  void fill(void *data, size_t count, mindspore::TypeId dtype) const override {
    std::memset(data, 0, count * find(dtype)->size);
  }

  void fill_on_gpu(void *data, size_t count, mindspore::TypeId dtype, void *stream) const override {
    static const auto zero = function_of<void(void *, size_t, void *)>("libms_ext_cuda.so", "ms_ext_zero");
    zero(data, count * find(dtype)->size, stream);
  }
};

// Of a dtype that has gradients.
class Ones final : public Filled {
 public:
  explicit Ones(bool on_host) : Filled("ones", on_host) {}

 protected:
  void fill(void *data, size_t count, mindspore::TypeId dtype) const override {
    switch (dtype) {
      case mindspore::TypeId::kNumberTypeFloat16:
        return fill<uint16_t>(data, count, 0x3C00);
      case mindspore::TypeId::kNumberTypeBFloat16:
        return fill<uint16_t>(data, count, 0x3F80);
      case mindspore::TypeId::kNumberTypeFloat64:
        return fill<double>(data, count, 1);
      case mindspore::TypeId::kNumberTypeComplex64:
        return fill<std::complex<float>>(data, count, 1);
      case mindspore::TypeId::kNumberTypeComplex128:
        return fill<std::complex<double>>(data, count, 1);
      default:
        return fill<float>(data, count, 1);
    }
  }

  void fill_on_gpu(void *data, size_t count, mindspore::TypeId dtype, void *stream) const override {
    using One = void(void *, size_t, const char *, void *);
    static const auto one = function_of<One>("libms_ext_cuda.so", "ms_ext_one");
    one(data, count, find(dtype)->name, stream);
  }

 private:
  template <typename Number>
  static void fill(void *data, size_t count, Number one) {
    std::fill_n(static_cast<Number *>(data), count, one);
  }
};

}  // namespace ms_ext::pynative
