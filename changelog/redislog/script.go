package redislog

import (
	"embed"

	"github.com/rshub/rshub/internal/redisconn"
)

//go:embed *.lua
var sources embed.FS

// scripts has the atomic steps of the log. Each is in the .lua file with its name, except that
// imports is in import.lua.
type scripts struct {
	append, since, find, trim, oldest, pack, sweep, name, make, describe, delete, memory *redisconn.Script
	imports, adopt, tick                                                                 *redisconn.Script
	load, swap, put, remove, numbers, requests                                           *redisconn.Script // of inventories
}

// readAll reads the scripts. In tests, edit changes them; otherwise it is nil.
func (s *scripts) readAll(edit func(string) string) {
	read := func(name string) string {
		b, err := sources.ReadFile(name + ".lua")
		if err != nil {
			panic(err) // it is embedded
		}
		return string(b)
	}
	for name, script := range map[string]**redisconn.Script{
		"append": &s.append, "since": &s.since, "find": &s.find, "trim": &s.trim, "oldest": &s.oldest, "pack": &s.pack, "sweep": &s.sweep,
		"name": &s.name, "make": &s.make, "describe": &s.describe, "delete": &s.delete, "memory": &s.memory,
		"import": &s.imports, "adopt": &s.adopt, "tick": &s.tick,
		"load": &s.load, "swap": &s.swap, "put": &s.put, "remove": &s.remove, "numbers": &s.numbers,
		"requests": &s.requests,
	} {
		source := read("lib") + read(name)
		if edit != nil {
			source = edit(source)
		}
		*script = redisconn.NewScript(source, wrote)
	}
}

// wrote reports whether a script did its work, and so may have written something: the first word of
// its answer is "ok".
func wrote(a redisconn.Answer) bool { return a.Word() == "ok" }
