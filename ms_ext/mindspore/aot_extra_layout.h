// MindSpore's class behind `extra`, for what is compiled with MindSpore's string ABI; see aot_extra.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "mindspore/aot_extra.h"

namespace ms_ext {

// The memory layout and the order of virtual functions of mindspore::AotExtra (custom_aot_extra.h, the same in
// MindSpore 2.8 to 2.10). Only what comes before the last function used has to be spelled out.
class AotExtra {
 public:
  virtual ~AotExtra() = default;
  virtual bool HasAttr(std::string name) = 0;
  virtual bool GetAttrBool(std::string name) = 0;
  virtual int64_t GetAttrInt(std::string name) = 0;
  virtual float GetAttrFloat(std::string name) = 0;
  virtual std::string GetAttrStr(std::string name) = 0;

  std::vector<size_t> workspace;
  KernelData *kernel_data;
};

// What a shim takes as `extra`: the two attributes that it reads, and the place for its decoded arguments.
class Extra final : public AotExtra {
 public:
  Extra(std::string op, std::string args) : op_(std::move(op)), args_(std::move(args)) { kernel_data = nullptr; }
  ~Extra() override { delete kernel_data; }
  bool HasAttr(std::string name) override { return name == "aten_op" || name == "aten_args"; }
  bool GetAttrBool(std::string) override { return false; }
  int64_t GetAttrInt(std::string) override { return 0; }
  float GetAttrFloat(std::string) override { return 0; }
  std::string GetAttrStr(std::string name) override { return name == "aten_op" ? op_ : args_; }

 private:
  std::string op_;
  std::string args_;
};

}  // namespace ms_ext
