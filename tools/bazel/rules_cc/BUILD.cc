package(default_visibility = ["//visibility:public"])
