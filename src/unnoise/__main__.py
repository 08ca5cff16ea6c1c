from unnoise.cli import main

main()
