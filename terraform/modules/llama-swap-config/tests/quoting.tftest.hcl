# How words of an argv are quoted; that llama-swap reads them back is shown by tools/tests/stack/test_argv_words.py.

variables {
  store = "/my models"
}

run "plain_words_stay_bare" {
  command = plan

  variables {
    store = "/models"
    models = { text = {
      argv   = ["llama-server", "--port", "$${PORT}", "--top-k", "-1", "--lora-scaled", "/a_b/c.gguf:0.5,/d%e@f+g=h"]
      files  = []
      intent = { aliases = [], context = 4096, group = "main", modalities = ["text"], parallel = 1, reasoning = "auto", ttl = 600 }
    } }
  }

  assert {
    condition     = yamldecode(output.yaml).models.text.cmd == "llama-server\n--port $${PORT}\n--top-k -1\n--lora-scaled /a_b/c.gguf:0.5,/d%e@f+g=h"
    error_message = "A word without special characters needs no quotes."
  }
}

run "other_words_are_quoted" {
  command = plan

  variables {
    engine = "/opt/my engine"
    models = { text = {
      argv   = ["llama-server", "-m", "$${STORE}/m", "--port", "$${PORT}", "--json", "{\"a\": 'b'}", "", "#c", "d\\", "e\n# f"]
      files  = []
      intent = { aliases = [], context = 4096, group = "main", modalities = ["text"], parallel = 1, reasoning = "auto", ttl = 600 }
    } }
  }

  assert {
    condition = yamldecode(output.yaml).models.text.cmd == join("", [
      "'/opt/my engine'\n-m '/my models/m'\n--port $${PORT}\n",
      "--json '{\"a\": '\\''b'\\''}' '' '#c' 'd\\' 'e''\n''# f'",
    ])
    error_message = "A word with special characters must be quoted whole."
  }
}
