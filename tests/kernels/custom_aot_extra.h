// The part of MindSpore's header of this name that kernels use: what MindSpore's own includes cannot be compiled
// without its sources.
#pragma once

#include <string>
#include <vector>

namespace mindspore {

class AotKernelData {
 public:
  virtual ~AotKernelData() = default;
};

class AotExtra {
 public:
  virtual ~AotExtra() = default;
  virtual bool HasAttr(std::string name) = 0;

  template <typename T>
  T Attr(std::string name) const;

  void SetWorkSpace(const std::vector<size_t> &workspace) { workspace_ = workspace; }
  void SetKernelData(AotKernelData *data) { kernel_data_ = data; }
  const AotKernelData *KernelData() const { return kernel_data_; }

 private:
  virtual bool GetAttrBool(std::string name) = 0;
  virtual int64_t GetAttrInt(std::string name) = 0;
  virtual float GetAttrFloat(std::string name) = 0;
  virtual std::string GetAttrStr(std::string name) = 0;

  std::vector<size_t> workspace_;
  AotKernelData *kernel_data_ = nullptr;
};

template <>
inline bool AotExtra::Attr<bool>(std::string name) const {
  return const_cast<AotExtra *>(this)->GetAttrBool(name);
}
template <>
inline int64_t AotExtra::Attr<int64_t>(std::string name) const {
  return const_cast<AotExtra *>(this)->GetAttrInt(name);
}
template <>
inline float AotExtra::Attr<float>(std::string name) const {
  return const_cast<AotExtra *>(this)->GetAttrFloat(name);
}
template <>
inline std::string AotExtra::Attr<std::string>(std::string name) const {
  return const_cast<AotExtra *>(this)->GetAttrStr(name);
}

}  // namespace mindspore
