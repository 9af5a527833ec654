// SPDX-License-Identifier: Apache-2.0

#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "stack/wire/tcp.h"
#include "tests/tcp/script.h"

namespace xtreme::tcp::testing {
namespace {

struct FlagLetter {
  char letter;
  uint8_t flag;
};
constexpr FlagLetter kFlags[] = {{'S', wire::kTcpSyn}, {'F', wire::kTcpFin}, {'R', wire::kTcpRst},
                                 {'P', wire::kTcpPsh}, {'.', wire::kTcpAck}, {'U', wire::kTcpUrg}};

bool ParseFlags(const std::string& word, uint8_t* flags) {
  if (word == "-") return true;
  for (const char c : word) {
    uint8_t flag = 0;
    for (const FlagLetter& known : kFlags) flag |= known.letter == c ? known.flag : 0;
    if (flag == 0) return false;
    *flags |= flag;
  }
  return !word.empty();
}

uint32_t Number(const std::string& word) {
  return static_cast<uint32_t>(std::strtoul(word.c_str(), nullptr, 10));
}

// One of `mss N`, `wscale N`, `sackOK`, `sack A:B ...`, `TS val A ecr B`, `nop`, `eol`.
bool ParseOption(const std::string& text, wire::TcpOptions* options) {
  std::istringstream in(text);
  std::string name;
  std::string word;
  in >> name;
  if (name == "nop" || name == "eol" || name.empty()) return true;
  if (name == "sackOK") return options->sack_permitted = true;
  if (name == "mss" && in >> word) {
    options->mss = static_cast<uint16_t>(Number(word));
    return true;
  }
  if (name == "wscale" && in >> word) {
    options->window_scale = static_cast<uint8_t>(Number(word));
    return true;
  }
  if (name == "sack") {
    std::vector<wire::SackBlock> blocks;
    while (in >> word) {
      wire::SackBlock block;
      if (std::sscanf(word.c_str(), "%u:%u", &block.left, &block.right) != 2) return false;
      blocks.push_back(block);
    }
    options->SetSack(blocks);
    return !blocks.empty();
  }
  wire::TcpTimestamps timestamps;
  if (std::sscanf(text.c_str(), " TS val %u ecr %u", &timestamps.value, &timestamps.echo) == 2) {
    options->timestamps = timestamps;
    return true;
  }
  return false;
}

bool ParseOptions(const std::string& text, wire::TcpOptions* options) {
  std::istringstream in(text);
  std::string option;
  while (std::getline(in, option, ',')) {
    if (!ParseOption(option, options)) return false;
  }
  return true;
}

bool ParseSegment(std::string text, ScriptSegment* segment) {
  const size_t open = text.find('<');
  if (open != std::string::npos) {
    const size_t close = text.find('>', open);
    if (close == std::string::npos) return false;
    segment->options.emplace();
    if (!ParseOptions(text.substr(open + 1, close - open - 1), &*segment->options)) return false;
    text.resize(open);
  }
  std::istringstream in(text);
  std::string flags;
  std::string numbers;
  if (!(in >> flags >> numbers) || !ParseFlags(flags, &segment->flags)) return false;
  uint32_t end = 0;
  if (std::sscanf(numbers.c_str(), "%u:%u(%u)", &segment->sequence, &end, &segment->length) != 3 ||
      segment->sequence + segment->length != end) {
    return false;
  }
  std::string name;
  std::string value;
  while (in >> name >> value) {
    if (name == "ack") {
      segment->ack = Number(value);
    } else if (name == "win") {
      segment->window = static_cast<uint16_t>(Number(value));
    } else if (name == "urg") {
      segment->urgent = static_cast<uint16_t>(Number(value));
    } else {
      return false;
    }
  }
  return true;
}

base::Nanoseconds Seconds(const std::string& word) {
  return base::Nanoseconds(static_cast<int64_t>(std::strtod(word.c_str(), nullptr) * 1e9 + 0.5));
}

// `+A`, or `+A~B`.
bool ParseWait(const std::string& word, ScriptLine* line) {
  if (word.empty() || word[0] != '+') return false;
  const size_t range = word.find('~');
  line->wait = Seconds(word.substr(1, range - 1));
  line->latest = range == std::string::npos ? line->wait : Seconds(word.substr(range + 1));
  return line->wait <= line->latest;
}

bool ParseLine(const std::string& text, ScriptLine* line) {
  std::istringstream in(text);
  std::string word;
  in >> word;
  if (word == "set") {
    line->kind = ScriptLine::Kind::kSet;
  } else {
    if (!ParseWait(word, line) || !(in >> word)) return false;
    if (word == "<" || word == ">") {
      line->kind = word == "<" ? ScriptLine::Kind::kArrives : ScriptLine::Kind::kSent;
      std::string rest;
      std::getline(in, rest);
      return ParseSegment(rest, &line->segment);
    }
    using Kind = ScriptLine::Kind;
    line->kind = word == "event" ? Kind::kEvent : word == "is" ? Kind::kIs : Kind::kCall;
    if (line->kind == ScriptLine::Kind::kCall) line->words.push_back(word);
  }
  while (in >> word) line->words.push_back(word);
  return !line->words.empty();
}

}  // namespace

std::string ParseScript(const std::string& text, std::vector<ScriptLine>* lines) {
  std::istringstream in(text);
  std::string line_text;
  for (int number = 1; std::getline(in, line_text); ++number) {
    const size_t comment = line_text.find('#');
    if (comment != std::string::npos) line_text.resize(comment);
    if (line_text.find_first_not_of(" \t") == std::string::npos) continue;
    ScriptLine line;
    line.number = number;
    if (!ParseLine(line_text, &line)) return "line " + std::to_string(number) + ": " + line_text;
    lines->push_back(std::move(line));
  }
  return "";
}

std::string ToString(const ScriptSegment& segment) {
  std::ostringstream out;
  for (const FlagLetter& known : kFlags) {
    if ((segment.flags & known.flag) != 0) out << known.letter;
  }
  out << " " << segment.sequence << ":" << segment.sequence + segment.length << "("
      << segment.length << ")";
  if (segment.ack) out << " ack " << *segment.ack;
  if (segment.window) out << " win " << *segment.window;
  if (!segment.options) return out.str();
  const wire::TcpOptions& options = *segment.options;
  out << " <";
  if (options.mss) out << "mss " << *options.mss << ",";
  if (options.window_scale) out << "wscale " << int{*options.window_scale} << ",";
  if (options.sack_permitted) out << "sackOK,";
  if (options.timestamps) {
    out << "TS val " << options.timestamps->value << " ecr " << options.timestamps->echo << ",";
  }
  if (options.sack_count != 0) out << "sack";
  for (const wire::SackBlock& block : options.sack()) {
    out << " " << block.left << ":" << block.right;
  }
  out << ">";
  return out.str();
}

}  // namespace xtreme::tcp::testing
