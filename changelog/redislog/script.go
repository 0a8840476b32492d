package redislog

import (
	"embed"
	"fmt"

	"github.com/redis/go-redis/v9"
)

//go:embed *.lua
var sources embed.FS

// scripts are the steps that are atomic, each in the .lua file of its name.
type scripts struct {
	append, since, find, trim, oldest, pack, sweep, name, make, describe, delete, memory *redis.Script
	keys, imports, adopt                                                                 *redis.Script
}

// load reads the scripts; edit may change one, for tests.
func (s *scripts) load(edit func(string) string) {
	read := func(name string) string {
		b, err := sources.ReadFile(name + ".lua")
		if err != nil {
			panic(err) // it is embedded
		}
		return string(b)
	}
	for name, script := range map[string]**redis.Script{
		"append": &s.append, "since": &s.since, "find": &s.find, "trim": &s.trim, "oldest": &s.oldest, "pack": &s.pack, "sweep": &s.sweep,
		"name": &s.name, "make": &s.make, "describe": &s.describe, "delete": &s.delete, "memory": &s.memory,
		"keys": &s.keys, "import": &s.imports, "adopt": &s.adopt,
	} {
		source := read("lib") + read(name)
		if edit != nil {
			source = edit(source)
		}
		*script = redis.NewScript(source)
	}
}

// An answer is what a script answers: a word, and what belongs to it.
type answer []any

func (a answer) word() string { return a.text(0) }

// text returns a string of an answer, "" where there is none.
func (a answer) text(i int) string {
	if i >= len(a) {
		return ""
	}
	if n, ok := a[i].(int64); ok {
		return fmt.Sprint(n)
	}
	s, _ := a[i].(string)
	return s
}

// number returns a number of an answer, 0 where there is none.
func (a answer) number(i int) int64 {
	if i >= len(a) {
		return 0
	}
	n, _ := a[i].(int64)
	return n
}
