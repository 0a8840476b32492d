module github.com/rshub/rshub/tools/mutants

go 1.26.8
