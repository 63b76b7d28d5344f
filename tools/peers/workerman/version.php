<?php
// Prints which Workerman, which PHP and which event loop: without ext-event it falls back to select, 1024 sockets at most.
require getenv('VENDOR') . '/autoload.php';

$loop = extension_loaded('event') ? 'ext-event ' . phpversion('event') : 'select';
echo 'Workerman ', Workerman\Worker::VERSION, ', PHP ', PHP_VERSION, ', event loop ', $loop, "\n";
