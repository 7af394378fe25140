# The build of llama.cpp that predicted the seats is the one that runs, or a plan warns.

mock_provider "kubernetes" {}

variables {
  catalog = "tests/catalogs/good"
  store   = { nfs = { server = "nas", path = "/export/models" } }
}

run "one_engine_is_no_warning" {
  command = plan
}

run "an_image_with_the_same_build_is_no_warning" {
  command = plan

  variables {
    image = "example/llama-swap:v252-cuda-${jsondecode(file("tests/catalogs/good/lock.json")).engine.predicts}-mine@sha256:1111111111111111111111111111111111111111111111111111111111111111"
  }
}

run "an_image_with_another_build_is_a_warning" {
  command         = plan
  expect_failures = [check.one_engine]

  variables {
    image = "example/llama-swap:v252-cuda-b10775-non-root@sha256:1111111111111111111111111111111111111111111111111111111111111111"
  }
}

run "an_image_with_an_unknown_build_is_a_warning" {
  command         = plan
  expect_failures = [check.one_engine]

  variables {
    image = "example/llama-swap:stable@sha256:1111111111111111111111111111111111111111111111111111111111111111"
  }
}

run "an_image_whose_tag_names_two_builds_is_a_warning" {
  command         = plan
  expect_failures = [check.one_engine]

  variables {
    image = "example/llama-swap:${jsondecode(file("tests/catalogs/good/lock.json")).engine.predicts}-b10775@sha256:1111111111111111111111111111111111111111111111111111111111111111"
  }
}
