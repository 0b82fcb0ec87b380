// Runs gloo's own halving-doubling allreduce with one thread a rank over a transport in memory, and prints each
// message that carries data: from, to, elements. Arguments: ranks, elements.
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/context.h>
#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <tuple>
#include <vector>

using gloo::transport::Address;
using gloo::transport::Buffer;
using gloo::transport::UnboundBuffer;

namespace {

// Messages on their way, by sender, receiver and slot.
class Network {
 public:
  void send(int from, int to, int slot, const char* data, size_t length) {
    std::lock_guard<std::mutex> hold(mutex_);
    if (slot % 2 == 0) {  // gloo sends notifications on odd slots
      std::printf("%d %d %zu\n", from, to, length / sizeof(float));
    }
    waiting_[{from, to, slot}].emplace_back(data, data + length);
    arrived_.notify_all();
  }

  std::vector<char> receive(int from, int to, int slot) {
    std::unique_lock<std::mutex> hold(mutex_);
    auto& queue = waiting_[{from, to, slot}];
    arrived_.wait(hold, [&] { return !queue.empty(); });
    auto message = queue.front();
    queue.pop_front();
    return message;
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<std::tuple<int, int, int>, std::deque<std::vector<char>>> waiting_;
};

class MemoryBuffer : public Buffer {
 public:
  MemoryBuffer(Network& network, int self, int peer, int slot, void* data, size_t size)
      : Buffer(slot, data, size), network_(network), self_(self), peer_(peer) {}

  void send(size_t offset, size_t length, size_t) override {
    network_.send(self_, peer_, slot_, static_cast<char*>(ptr_) + offset, length);
  }

  void waitRecv() override {
    const auto message = network_.receive(peer_, self_, slot_);
    if (message.size() > size_) throw std::runtime_error("a message is larger than its buffer");
    std::memcpy(ptr_, message.data(), message.size());
  }

  void waitSend() override {}

 private:
  Network& network_;
  int self_, peer_;
};

class MemoryAddress : public Address {
 public:
  std::string str() const override { return "memory"; }
  std::vector<char> bytes() const override { return {}; }
};

class MemoryPair : public gloo::transport::Pair {
 public:
  MemoryPair(Network& network, int self, int peer) : network_(network), self_(self), peer_(peer) {}

  const Address& address() const override { return address_; }
  void connect(const std::vector<char>&) override {}
  void close() override {}
  void setSync(bool, bool) override {}
  void send(UnboundBuffer*, uint64_t, size_t, size_t) override { throw std::logic_error("not used"); }
  void recv(UnboundBuffer*, uint64_t, size_t, size_t) override { throw std::logic_error("not used"); }

  std::unique_ptr<Buffer> createSendBuffer(int slot, void* data, size_t size) override {
    return std::unique_ptr<Buffer>(new MemoryBuffer(network_, self_, peer_, slot, data, size));
  }
  std::unique_ptr<Buffer> createRecvBuffer(int slot, void* data, size_t size) override {
    return createSendBuffer(slot, data, size);
  }

 private:
  Network& network_;
  int self_, peer_;
  MemoryAddress address_;
};

class MemoryTransport : public gloo::transport::Context {
 public:
  MemoryTransport(Network& network, int rank, int size) : Context(rank, size), network_(network) {}

  std::unique_ptr<gloo::transport::Pair>& createPair(int peer) override {
    pairs_[peer] = std::unique_ptr<gloo::transport::Pair>(new MemoryPair(network_, rank, peer));
    return pairs_[peer];
  }
  std::unique_ptr<UnboundBuffer> createUnboundBuffer(void*, size_t) override { throw std::logic_error("not used"); }

 private:
  Network& network_;
};

class MemoryContext : public gloo::Context {
 public:
  MemoryContext(Network& network, int rank, int size) : Context(rank, size) {
    transportContext_ = std::make_shared<MemoryTransport>(network, rank, size);
    for (int peer = 0; peer < size; ++peer) {
      if (peer != rank) transportContext_->createPair(peer);
    }
  }
};

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return 2;
  const int ranks = std::atoi(arguments[1]), elements = std::atoi(arguments[2]);
  Network network;
  std::vector<std::vector<float>> gradient(ranks, std::vector<float>(elements));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      std::fill(gradient[rank].begin(), gradient[rank].end(), rank + 1.0f);
      auto context = std::make_shared<MemoryContext>(network, rank, ranks);
      gloo::AllreduceHalvingDoubling<float> allreduce(context, {gradient[rank].data()}, elements);
      allreduce.run();
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& sum : gradient) {
    for (const float value : sum) {
      if (value != ranks * (ranks + 1) / 2.0f) return 1;
    }
  }
  return 0;
}
