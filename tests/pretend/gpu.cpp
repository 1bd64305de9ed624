// A GPU that is none: tensors of the device "cuda" whose memory is ordinary and whose operations run on the CPU.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/alias_native.h>
#include <ATen/ops/resize_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace {

using at::Tensor;
const c10::Device kHere(c10::DeviceType::CUDA, 0);

std::atomic<int64_t> launches{0}, waits{0}, held{0}, most{0};

void taken(int64_t bytes) {
  const int64_t now = held += bytes;
  for (int64_t seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {}
}

struct Memory final : c10::Allocator {
  static constexpr size_t kHead = 64;  // how long a block is, before it
  c10::DataPtr allocate(size_t bytes) override {
    void* block = nullptr;
    if (posix_memalign(&block, kHead, bytes + kHead)) throw std::bad_alloc();
    *static_cast<size_t*>(block) = bytes;
    taken(static_cast<int64_t>(bytes));
    void* data = static_cast<char*>(block) + kHead;
    return {data, data, &release, kHere};
  }
  static void release(void* data) {
    if (!data) return;
    void* block = static_cast<char*>(data) - kHead;
    held -= static_cast<int64_t>(*static_cast<size_t*>(block));
    std::free(block);
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
};
Memory memory;

// the same memory, seen as a tensor of the CPU
Tensor bare(const Tensor& x) {
  if (!x.is_cuda()) return x;
  if (x.numel() && !x.storage().data())  // the zeros that forward gradients begin with have no memory
    return at::zeros(x.sizes(), x.options().device(at::kCPU));
  auto storage = c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), x.storage().nbytes(),
      c10::DataPtr(const_cast<void*>(x.storage().data()), c10::Device(c10::kCPU)), c10::GetCPUAllocator(), true));
  auto made = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), x.dtype());
  auto* impl = made.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(x.sizes(), x.strides(), x.storage_offset());
  made._set_conj(x.is_conj());
  made._set_neg(x.is_neg());
  return made;
}

Tensor empty(c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
             std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), &memory, c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                   c10::dtype_or_default(dtype), format);
}
Tensor empty_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<at::ScalarType> dtype,
                     std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), &memory,
                                           c10::DispatchKeySet(c10::DispatchKey::CUDA), c10::dtype_or_default(dtype));
}
Tensor& copy_(Tensor& self, const Tensor& from, bool) {
  ++(from.is_cuda() != self.is_cuda() ? waits : launches);  // one waits for what comes from the CPU, too
  const at::NoGradGuard no;
  const c10::impl::ExcludeDispatchKeyGuard guard(c10::autograd_dispatch_keyset);
  bare(self).copy_(bare(from));
  return self;
}
Tensor copy_from(const Tensor& self, const Tensor& to, bool) {
  auto target = to;
  copy_(target, self, false);
  return to;
}
Tensor copy_from_and_resize(const Tensor& self, const Tensor& to) {
  to.resize_(self.sizes());
  auto target = to;
  copy_(target, self, false);
  return to;
}
at::Scalar local_scalar(const Tensor& self) { ++waits; return bare(self).item(); }
int64_t sdp(const Tensor&, const Tensor&, const Tensor&, const std::optional<Tensor>&, double, bool,
            std::optional<double>, bool) { return 0; }
const Tensor& resize(const Tensor& self, c10::SymIntArrayRef size, std::optional<at::MemoryFormat> format) {
  auto wanted = C10_AS_INTARRAYREF_SLOW(size);
  auto* impl = self.unsafeGetTensorImpl();
  if (self.sizes() == wanted) return self;
  int64_t numel = 1;
  for (auto s : wanted) numel *= s;
  auto bytes = (numel + self.storage_offset()) * self.itemsize();
  if (bytes > static_cast<int64_t>(self.storage().nbytes())) {
    auto fresh = memory.allocate(bytes);
    if (self.storage().nbytes()) std::memcpy(fresh.get(), self.storage().data(), self.storage().nbytes());
    self.storage().set_data_ptr_noswap(std::move(fresh));
    self.storage().set_nbytes(bytes);
  }
  impl->set_sizes_contiguous(wanted);
  if (format && *format != at::MemoryFormat::Preserve) impl->empty_tensor_restride(*format);
  return self;
}
Tensor& set_storage(Tensor& self, at::Storage storage, c10::SymInt offset, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(storage));
  auto s = C10_AS_INTARRAYREF_SLOW(size);
  auto st = C10_AS_INTARRAYREF_SLOW(stride);
  if (stride.size() || size.empty()) impl->set_sizes_and_strides(s, st, offset.expect_int());
  else { impl->set_storage_offset(offset.expect_int()); impl->set_sizes_contiguous(s); }
  return self;
}

// beside tensors of a GPU there may be single numbers of the CPU, and indices; nothing else
void together(const std::string& name, const Tensor& x) {
  const bool picks = name.rfind("aten::index", 0) == 0 || name.rfind("aten::_index_put", 0) == 0;
  TORCH_CHECK(!x.defined() || x.is_cuda() || x.dim() == 0 || (picks && !x.is_floating_point()),
              "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! (",
              name, ")");
}

// what the GPU has to be asked for before the program can go on
bool answers(const std::string& name, const std::vector<Tensor>& given) {
  static const std::set<std::string> kAsking{"aten::nonzero",       "aten::masked_select", "aten::equal",
                                             "aten::_unique2",      "aten::unique_dim",    "aten::bincount",
                                             "aten::repeat_interleave", "aten::unique_consecutive"};
  if (kAsking.count(name)) return true;
  if (name != "aten::index" && name != "aten::index_put_" && name != "aten::_index_put_impl_") return false;
  for (size_t i = 1; i < given.size(); ++i)
    if (given[i].defined() && (given[i].scalar_type() == at::kBool || given[i].is_cpu())) return true;
  return false;
}

struct Kept {
  c10::Storage storage;
  int64_t bytes;
};
// memory that an operation of the CPU has made, as memory of the GPU
Tensor dressed(const Tensor& x, const std::vector<Tensor>& given, const std::vector<Tensor>& shown) {
  if (!x.defined()) return x;
  c10::Storage storage;
  for (size_t i = 0; i < shown.size(); ++i)
    if (shown[i].defined() && given[i].is_cuda() && shown[i].storage().data() == x.storage().data() && x.storage().data())
      storage = given[i].storage();
  if (!storage) {
    const auto bytes = static_cast<int64_t>(x.storage().nbytes());
    taken(bytes);
    auto* kept = new Kept{x.storage(), bytes};
    c10::DataPtr data(const_cast<void*>(x.storage().data()), kept, [](void* held_here) {
      auto* gone = static_cast<Kept*>(held_here);
      held -= gone->bytes;
      delete gone;
    }, kHere);
    storage = c10::Storage(c10::make_intrusive<c10::StorageImpl>(
        c10::StorageImpl::use_byte_size_t(), x.storage().nbytes(), std::move(data), &memory, false));
  }
  auto made = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CUDA), x.dtype());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(x.sizes(), x.strides(), x.storage_offset());
  return made;
}

// an operation may have given what it writes another size
void written(const Tensor& given, const Tensor& shown) {
  if (given.sizes() == shown.sizes() && given.storage().data() == shown.storage().data()) return;
  given.resize_(shown.sizes());
  if (shown.numel()) bare(given).copy_(shown);
}

// every other operation: on the same memory, as the CPU does it
void elsewhere(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  ++launches;
  const auto& schema = op.schema();
  const auto& name = schema.name();
  std::vector<Tensor> given, shown;
  const auto one = [&](const Tensor& x) {
    together(name, x);
    given.push_back(x);
    shown.push_back(x.defined() ? bare(x) : x);
    return shown.back();
  };
  const size_t count = schema.arguments().size(), first = stack->size() - count;
  std::vector<std::pair<size_t, Tensor>> places;  // argument -> the tensor it was
  std::map<size_t, std::vector<Tensor>> lists;
  for (size_t i = 0; i < count; ++i) {
    auto& value = (*stack)[first + i];
    if (value.isTensor()) {
      const Tensor x = value.toTensor();
      places.emplace_back(i, x);
      value = one(x);
    } else if (value.isTensorList()) {
      c10::List<Tensor> shown_list;
      for (const Tensor& x : value.toTensorVector()) { lists[i].push_back(x); shown_list.push_back(one(x)); }
      value = shown_list;
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<Tensor>> shown_list;
      for (const std::optional<Tensor>& x : value.toOptionalTensorVector())
        shown_list.push_back(x ? std::optional<Tensor>(one(*x)) : std::nullopt);
      value = shown_list;
    } else if (value.isDevice() && value.toDevice().is_cuda()) {
      value = c10::Device(c10::kCPU);
    }
  }
  if (answers(name, given)) ++waits;
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  const size_t results = schema.returns().size(), start = stack->size() - results;
  for (size_t i = 0; i < given.size(); ++i)
    if (given[i].defined() && given[i].is_cuda()) written(given[i], shown[i]);
  for (size_t i = 0; i < results; ++i) {
    auto& value = (*stack)[start + i];
    const auto* alias = schema.returns()[i].alias_info();
    if (value.isTensor() && alias && alias->isWrite()) {
      for (const auto& [at, was] : places) {
        const auto* own = schema.arguments()[at].alias_info();
        if (own && *own == *alias) value = was;
      }
    } else if (value.isTensor()) {
      value = dressed(value.toTensor(), given, shown);
    } else if (value.isTensorList()) {
      c10::List<Tensor> made;
      for (const Tensor& x : value.toTensorVector()) made.push_back(dressed(x, given, shown));
      value = made;
    }
  }
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static constexpr c10::DeviceType static_type = c10::DeviceType::CUDA;
  c10::DeviceType type() const override { return static_type; }
  c10::Device exchangeDevice(c10::Device) const override { return kHere; }
  c10::Device getDevice() const override { return kHere; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override { return c10::Stream(c10::Stream::DEFAULT, kHere); }
  c10::Stream getDefaultStream(c10::Device) const override { return c10::Stream(c10::Stream::DEFAULT, kHere); }
  c10::Stream exchangeStream(c10::Stream) const override { return c10::Stream(c10::Stream::DEFAULT, kHere); }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeEvent(void*) const override {}
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}
};
C10_REGISTER_GUARD_IMPL(CUDA, Guard)

}  // namespace

namespace at {
// what the CPU's part of PyTorch asks a GPU's part, which is not there
struct CUDAHooks final : CUDAHooksInterface {
  explicit CUDAHooks(CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  int getNumGPUs() const override { return 1; }
  DeviceIndex deviceCount() const override { return 1; }
  DeviceIndex current_device() const override { return 0; }
  DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(DeviceIndex) const override {}
  DeviceIndex exchangeDevice(DeviceIndex) const override { return 0; }
  DeviceIndex maybeExchangeDevice(DeviceIndex) const override { return 0; }
  Allocator* getCUDADeviceAllocator() const override { return &memory; }
  Allocator* getPinnedMemoryAllocator() const override { return c10::GetCPUAllocator(); }
  const Generator& getDefaultGenerator(DeviceIndex) const override {
    static const Generator own = at::detail::createCPUGenerator();
    return own;
  }
  Generator getNewGenerator(DeviceIndex) const override { return at::detail::createCPUGenerator(); }
  void deviceSynchronize(DeviceIndex) const override {}
};
REGISTER_CUDA_HOOKS(CUDAHooks)
}  // namespace at

TORCH_LIBRARY_IMPL(_, CUDA, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&elsewhere>()); }
TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("copy_", &copy_);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("_local_scalar_dense", &local_scalar);
  m.impl("resize_", &resize);
  m.impl("set_.source_Storage_storage_offset", &set_storage);
  m.impl("as_strided", [](const Tensor& s, at::IntArrayRef a, at::IntArrayRef b, std::optional<int64_t> o) { return at::native::as_strided_tensorimpl(s, a, b, o); });
  m.impl("view", [](const Tensor& s, at::IntArrayRef a) { return at::native::view(s, a); });
  m.impl("_reshape_alias", [](const Tensor& s, at::IntArrayRef a, at::IntArrayRef b) { return at::native::_reshape_alias(s, a, b); });
  m.impl("unfold", [](const Tensor& s, int64_t d, int64_t z, int64_t t) { return at::native::unfold(s, d, z, t); });
  m.impl("_fused_sdp_choice", &sdp);
  m.impl("convolution", torch::CppFunction::makeFromBoxedFunction<&elsewhere>());
  m.impl("convolution_backward", torch::CppFunction::makeFromBoxedFunction<&elsewhere>());
}
TORCH_LIBRARY(pretended, m) {
  m.def("launches() -> int", []() -> int64_t { return launches; });
  m.def("held() -> int", []() -> int64_t { return held; });
  m.def("most() -> int", []() -> int64_t { return most; });
  m.def("forget() -> int", []() -> int64_t { return most = held.load(); });
  m.def("waits() -> int", []() -> int64_t { return waits; });
}
