// The dtypes that MindSpore and ATen share, in four columns: MindSpore's name, which bridge/op/dtypes.py reads too; its
// TypeId, without kNumberType; ATen's ScalarType; the bytes of an element. float32 is looked up most, and the first.
#pragma once

#define MS_EXT_DTYPES(_)                             \
  _("float32", Float32, Float, 4)                    \
  _("float64", Float64, Double, 8)                   \
  _("float16", Float16, Half, 2)                     \
  _("bfloat16", BFloat16, BFloat16, 2)               \
  _("int64", Int64, Long, 8)                         \
  _("int32", Int32, Int, 4)                          \
  _("int16", Int16, Short, 2)                        \
  _("int8", Int8, Char, 1)                           \
  _("uint8", UInt8, Byte, 1)                         \
  _("bool", Bool, Bool, 1)                           \
  _("complex64", Complex64, ComplexFloat, 8)         \
  _("complex128", Complex128, ComplexDouble, 16)     \
  _("uint16", UInt16, UInt16, 2)                     \
  _("uint32", UInt32, UInt32, 4)                     \
  _("uint64", UInt64, UInt64, 8)                     \
  _("float8_e4m3fn", Float8E4M3FN, Float8_e4m3fn, 1) \
  _("float8_e5m2", Float8E5M2, Float8_e5m2, 1)
