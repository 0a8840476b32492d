module github.com/rshub/rshub/tools/licences

go 1.26.8
