// One question to an OpenAI API, and the answer while it comes: go run . URL MODEL QUESTION
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 4 {
		log.Fatal("usage: go run . URL MODEL QUESTION, as in: go run . http://127.0.0.1:8081/v1 smollm2 Hello.")
	}
	url, model, question := os.Args[1], os.Args[2], os.Args[3]
	key := os.Getenv("CORRAL_KEY") // the front door wants one where the catalog has clients
	if key == "" {
		key = "none" // the SDK would take OPENAI_API_KEY, a secret of another service
	}
	client := openai.NewClient(option.WithBaseURL(url), option.WithAPIKey(key), option.WithMaxRetries(0))
	stream := client.Chat.Completions.NewStreaming(context.Background(), openai.ChatCompletionNewParams{
		Model:       model,
		Messages:    []openai.ChatCompletionMessageParamUnion{openai.UserMessage(question)},
		MaxTokens:   openai.Int(16),
		Temperature: openai.Float(0),
	})
	for stream.Next() {
		for _, choice := range stream.Current().Choices {
			fmt.Print(choice.Delta.Content)
		}
	}
	fmt.Println()
	if err := stream.Err(); err != nil {
		log.Fatal(err)
	}
}
